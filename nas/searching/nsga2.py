"""NSGA-II, as a fold over results: pymoo's ranking and survival as functions of a population.

Deb et al. 2002, "A fast and elitist multiobjective genetic algorithm: NSGA-II": parents win binary
tournaments by rank and crowding distance, and the best of parents and offspring survive by the
same order. Told a generation at a time it is the paper's; told one result at a time, the steady
form of Durillo et al. 2009, "On the effect of the steady-state selection scheme".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pymoo.config import Config
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.operators.survival.rank_and_crowding import RankAndCrowding

from nas.searching.algorithm import ALGORITHMS, PATIENCE, TELL
from nas.searching.told import Attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas.searching.algorithm import Materials
    from nas.searching.told import Told

# Offspring by crossover; the others are mutants. On an analytic landscape over two of our spaces
# shares of 0.5 to 0.9 did alike, and better than none, or than mutating the crossover's child too.
CROSSOVER_SHARE: Final = 0.75
# Finite, because pymoo ranks NaN above a valid candidate; the constraint ranks a failure last.
FAILED_COST: Final = 0.0
TOLD: Final = "told"

# It prints an advertisement for its compiled modules otherwise.
Config.warnings["not_compiled"] = False


@ALGORITHMS.register("nsga2")
class Nsga2:
    """NSGA-II; a failure is infeasible, and so behind every success."""

    def __init__(self, materials: Materials) -> None:
        self._materials = materials
        width = len(materials.objectives)
        self._problem = Problem(n_var=1, n_obj=width, n_ieq_constr=1, vtype=object)
        self._survival = RankAndCrowding()
        self._members: Any = Population.empty()

    @property
    def members(self) -> list[Told]:
        """The present population."""
        return [member.get(TOLD) for member in self._members]

    def tell(self, told: Sequence[Told]) -> None:
        """Rank what is new among the population; the best survive."""
        told = [one for one in told if not one.is_repeat]
        if not told:
            return
        pool = Population.merge(self._members, self._population(told))
        self._members = self._survival.do(
            self._problem,
            pool,
            n_survive=self._materials.population,
            random_state=self._materials.generator(told[-1].number, TELL),
        )

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Draw offspring of two tournaments' winners."""
        if len(self._members) == 0:
            return self._materials.sample(rng)
        a, b = self._winner(rng), self._winner(rng)
        if num_failed < PATIENCE and a is not b and rng.random() < CROSSOVER_SHARE:
            genome, operator = self._materials.operators.crossover(a.genome, b.genome, rng)
            return Attempt(genome, operator, parents=(a.digest, b.digest))
        return self._materials.mutant(a, rng, num_failed)

    def _winner(self, rng: np.random.Generator) -> Told:
        """The better of two members drawn; the first of two that are alike."""
        count = len(self._members)
        drawn = rng.choice(count, size=2, replace=count < 2)
        winner: Told = min((self._members[i] for i in drawn), key=_standing).get(TOLD)
        return winner

    def _population(self, told: Sequence[Told]) -> Any:
        failed = (FAILED_COST,) * len(self._materials.objectives)
        costs = [failed if one.costs is None else one.costs for one in told]
        violation = [[float(one.costs is None)] for one in told]
        return Population.new(
            "F", np.array(costs, float), "G", np.array(violation), TOLD, list(told)
        )


def _standing(member: Any) -> tuple[bool, float, float]:
    """The crowded comparison: failures last, then by rank, then the less crowded first."""
    if member.get(TOLD).costs is None:
        return True, 0.0, 0.0
    return False, float(member.get("rank")), -float(member.get("crowding"))
