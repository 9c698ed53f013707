"""NSGA-II by pymoo: ask and tell over genomes.

Deb et al. 2002, "A fast and elitist multiobjective genetic algorithm: NSGA-II": parents win binary
tournaments by rank and crowding distance, and the best of parents and offspring survive by the
same order. pymoo gives tournament, ranking and survival; mating is ours, since pymoo knows no
duplicates but those in its present population and stops silently when it finds nothing new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2, binary_tournament
from pymoo.config import Config
from pymoo.core.evaluator import Evaluator
from pymoo.core.infill import InfillCriterion
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.core.sampling import Sampling
from pymoo.core.termination import NoTermination
from pymoo.operators.selection.tournament import TournamentSelection
from pymoo.operators.survival.rank_and_crowding import RankAndCrowding
from pymoo.problems.static import StaticProblem

from nas.search.algorithm import PATIENCE
from nas.search.novelty import Attempt, fill, new_ones

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nas.search.algorithm import Materials, Result
    from nas.search.novelty import Proposed

# Offspring by crossover; the others are mutants. On an analytic landscape over two of our spaces
# shares of 0.5 to 0.9 did alike, and better than none, or than mutating the crossover's child too.
CROSSOVER_SHARE: Final = 0.75
# Finite, because pymoo ranks NaN above a valid candidate; the constraint ranks a failure last.
FAILED_COST: Final = 0.0
PROPOSED: Final = "proposed"

# It prints an advertisement for its compiled modules otherwise.
Config.warnings["not_compiled"] = False


class Nsga2:
    """NSGA-II with a generation of new offspring each time; a failure is infeasible."""

    def __init__(self, materials: Materials) -> None:
        self._problem = Problem(
            n_var=1, n_obj=materials.num_objectives, n_ieq_constr=1, vtype=object
        )
        self._first = _FirstPopulation(materials)
        self._mating = _Mating(materials)
        self._engine = NSGA2(
            pop_size=materials.population,
            sampling=self._first,
            mating=self._mating,
            survival=RankAndCrowding(),
            eliminate_duplicates=False,
            seed=materials.seed,
            output=None,
        )
        # The paper's crowded comparison goes by rank; pymoo's default by dominance of the two.
        self._engine.tournament_type = "comp_by_rank_and_crowding"
        self._engine.setup(self._problem, termination=NoTermination())
        self._asked: Any = None

    def ask(self) -> list[Proposed]:
        """Propose new offspring; at first mechanisms and samples."""
        source = self._mating if self._engine.is_initialized else self._first
        self._asked = self._engine.ask()
        return source.tried

    def tell(self, results: Sequence[Result]) -> None:
        """Rank the new ones against the population; pymoo keeps the best."""
        width = self._problem.n_obj
        costs = [(FAILED_COST,) * width if result is None else result for result in results]
        violation = [[float(result is None)] for result in results]
        known = StaticProblem(self._problem, F=np.array(costs, float), G=np.array(violation))
        Evaluator().eval(known, self._asked)
        self._engine.tell(infills=self._asked)


class _FirstPopulation(Sampling):  # type: ignore[misc] # pymoo is untyped
    def __init__(self, materials: Materials) -> None:
        super().__init__()
        self._materials = materials
        self.tried: list[Proposed] = []

    def do(self, problem: Any, n_samples: int, *args: Any, **kwargs: Any) -> Any:
        self.tried = self._materials.first_generation(kwargs["random_state"])
        return _population(self.tried)


class _Mating(InfillCriterion):  # type: ignore[misc] # pymoo is untyped
    """Tournament, crossover or mutation, until the generation is full of new offspring."""

    def __init__(self, materials: Materials) -> None:
        super().__init__()
        self._materials = materials
        self._selection = TournamentSelection(func_comp=binary_tournament)
        self.tried: list[Proposed] = []

    def do(
        self, problem: Any, pop: Any, n_offsprings: int, random_state: Any = None, **kwargs: Any
    ) -> Any:
        couples = self._couples(problem, pop, n_offsprings, random_state, kwargs["algorithm"])
        self.tried = fill(
            self._materials.novelty,
            n_offsprings,
            lambda num_failed: self._offspring(*next(couples), random_state, num_failed),
        )
        return _population(self.tried)

    def _couples(
        self, problem: Any, pop: Any, count: int, rng: np.random.Generator, algorithm: Any
    ) -> Iterator[tuple[Proposed, Proposed]]:
        """Winners of tournaments in which every member of the population meets as often."""
        while True:
            winners = self._selection(
                problem, pop, count, n_parents=2, random_state=rng, algorithm=algorithm
            )
            for a, b in winners:
                yield a.get(PROPOSED), b.get(PROPOSED)

    def _offspring(
        self, a: Proposed, b: Proposed, rng: np.random.Generator, num_failed: int
    ) -> Attempt:
        if num_failed < PATIENCE and a is not b and rng.random() < CROSSOVER_SHARE:
            genome, name = self._materials.operators.crossover(a.genome, b.genome, rng)
            return Attempt(genome, name, (a.digest, b.digest))
        return self._materials.mutant(a, rng, num_failed)


def _population(tried: Sequence[Proposed]) -> Any:
    new = new_ones(tried)
    genomes = np.empty((len(new), 1), dtype=object)
    genomes[:, 0] = [proposed.genome for proposed in new]
    return Population.new("X", genomes, PROPOSED, new)
