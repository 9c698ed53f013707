"""NSGA-II: a genetic algorithm that ranks candidates by dominance and crowding distance.

Deb et al. 2002, "A fast and elitist multiobjective genetic algorithm: NSGA-II": parents win binary
tournaments by rank and crowding distance, and the best of parents and offspring survive by the
same order. pymoo computes ranks and survivors. Each call of ``tell`` selects survivors. If a call
contains the results of a generation, this is the algorithm of the paper. If a call contains a
single result, this is the steady-state variant of Durillo et al. 2009, "On the effect of the
steady-state selection scheme".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from pymoo.config import Config
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.operators.survival.rank_and_crowding import RankAndCrowding

from nas.common.objectives import limits_of
from nas.searching.algorithm import ALGORITHMS, PATIENCE, TELL, Attempt, SearchContext, TrialResult

# Share of offspring by crossover; all other offspring are mutants. On an analytic landscape over
# two spaces, shares of 0.5 to 0.9 were equally good, and better than 0. In a space of 61
# primitives, searches with a surrogate found more with 0.5.
CROSSOVER_SHARE: Final = 0.5
# Any finite number: pymoo ranks NaN above a valid candidate. The constraint ranks failures last.
FAILED_COST: Final = 0.0
FAILED: Final = 1e9  # violation of the constraint by a failed candidate
TINY: Final = 1e-30  # avoids a division by zero
RESULT: Final = "result"

# Otherwise pymoo prints an advertisement for its compiled modules.
Config.warnings["not_compiled"] = False


@ALGORITHMS.register("nsga2")
class Nsga2:
    """NSGA-II with constraints (section VI of the paper).

    Candidates that exceed limits of objectives rank behind all candidates that do not, by the sum
    of the excesses, each relative to the distance between the ideal value and the limit. A failed
    candidate ranks last.
    """

    def __init__(self, context: SearchContext) -> None:
        self._context = context
        width = len(context.objectives)
        self._problem = Problem(n_var=1, n_obj=width, n_ieq_constr=1, vtype=object)
        self._survival = RankAndCrowding()
        self._limits = np.array(limits_of(context.objectives))
        ideal = np.array([o.as_cost(o.ideal) for o in context.objectives])
        is_limited = np.isfinite(self._limits)
        self._scale = np.where(is_limited, np.abs(self._limits - ideal), 1.0) + TINY
        self._members: Any = Population.empty()

    @property
    def members(self) -> list[TrialResult]:
        """The current population."""
        return [member.get(RESULT) for member in self._members]

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Add new results to the population, and keep the best ``population`` members."""
        new = [result for result in results if not result.is_repeat]
        if not new:
            return
        failed = (FAILED_COST,) * len(self._context.objectives)
        costs = np.array([failed if r.costs is None else r.costs for r in new], float)
        violations = np.array([[self._violation(result)] for result in new])
        born = Population.new("F", costs, "G", violations, RESULT, new)
        self._members = self._survival.do(
            self._problem,
            Population.merge(self._members, born),
            n_survive=self._context.population,
            random_state=self._context.generator(new[-1].number, TELL),
        )

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Return an offspring of the winners of two tournaments."""
        if len(self._members) == 0:
            return self._context.sample(rng)
        a, b = self._winner(rng), self._winner(rng)
        if num_failed < PATIENCE and a is not b and rng.random() < CROSSOVER_SHARE:
            genome, operator = self._context.operators.crossover(a.genome, b.genome, rng)
            return Attempt(genome, operator, parents=(a.digest, b.digest))
        return self._context.mutant(a, rng, num_failed)

    def _winner(self, rng: np.random.Generator) -> TrialResult:
        count = len(self._members)
        drawn = rng.choice(count, size=2, replace=count < 2)
        winner: TrialResult = min((self._members[i] for i in drawn), key=_standing).get(RESULT)
        return winner

    def _violation(self, result: TrialResult) -> float:
        """Return by how much a candidate exceeds limits; 0 inside, ``FAILED`` for a failure."""
        if result.costs is None:
            return FAILED
        excess = np.maximum(np.array(result.costs) - self._limits, 0.0) / self._scale
        return min(float(excess.sum()), FAILED / 2)


def _standing(member: Any) -> tuple[float, float, float]:
    """Return a sort key for members: by violation, then by rank, then by crowding distance."""
    violation = float(member.get("CV")[0])
    if violation > 0:
        return violation, 0.0, 0.0
    return 0.0, float(member.get("rank")), -float(member.get("crowding"))
