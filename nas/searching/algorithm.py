"""The protocol of search algorithms, the context that they are built from, and their registry.

The state of an algorithm is a function of the results that it received, in order of submission;
proposal t depends on that state and a random generator derived from (seed, t). So the same record
gives the same proposals, and a run is resumed by reading its record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from nas.common.objectives import Objective
from nas.common.registry import Registry
from nas.genome import Genome
from nas.searching.results import Attempt, TrialResult
from nas.space.variation import Variation

if TYPE_CHECKING:
    from nas.searching.archive import Archive
    from nas.searching.filtering import CandidateFilter

# The purpose of a generator: to draw a proposal, or to break ties when results arrive.
PROPOSE: Final = 0
TELL: Final = 1

# Failed attempts in a row after which an offspring is mutated harder, and after which half of the
# attempts are fresh samples.
PATIENCE: Final = 8
MAX_STRENGTH: Final = 5
SAMPLE_AFTER: Final = PATIENCE * (MAX_STRENGTH - 1)


@dataclass(frozen=True)
class SearchContext:
    """Everything that an algorithm may use.

    Attributes:
        mechanisms: (name, genome) of published mechanisms, proposed first; samples complete the
            first generation.
        population: number of proposals in a generation.
        seed: seeds every random generator; see ``generator``.
        filter: resolves an attempt and decides whether it is legal and new.
        archive: all results so far with their estimates; updated before the algorithm.
    """

    operators: Variation
    mechanisms: tuple[tuple[str, Genome], ...]
    population: int
    objectives: tuple[Objective, ...]
    seed: int
    filter: CandidateFilter
    archive: Archive

    def generator(self, number: int, purpose: int = PROPOSE) -> np.random.Generator:
        """The random generator of one proposal, independent of all other proposals."""
        return np.random.default_rng([self.seed, number, purpose])

    def sample(self, rng: np.random.Generator) -> Attempt:
        """A fresh sample of the space."""
        return Attempt(self.operators.sample(rng), "sample")

    def mutant(self, parent: TrialResult, rng: np.random.Generator, num_failed: int) -> Attempt:
        """A mutant of a parent.

        The more attempts have failed, the more mutations it has; after ``SAMPLE_AFTER`` failures
        half of the attempts are samples.
        """
        if num_failed >= SAMPLE_AFTER and rng.random() < 0.5:
            return self.sample(rng)
        strength = min(MAX_STRENGTH, 1 + num_failed // PATIENCE)
        genome, operator = self.operators.mutate(parent.genome, rng, strength)
        # Where no operator applies, variation gives a sample, which has no parent.
        return Attempt(genome, operator, parents=() if operator == "sample" else (parent.digest,))


class Algorithm(Protocol):
    """Proposes genomes and learns from their results.

    The first generation does not come from the algorithm: it holds named mechanisms, then samples.
    ``tell`` receives results in order of submission, several at a time. Their division into calls
    changes nothing, unless the algorithm documents it (NSGA-II selects survivors a generation at a
    time). ``propose`` draws from ``rng`` alone and changes no state.
    """

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Add the results of earlier proposals."""
        ...

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Draw an attempt after ``num_failed`` consecutive attempts without a new mechanism.

        An attempt with the operator ``REPEAT`` re-evaluates a known mechanism.
        """
        ...


ALGORITHMS: Final[Registry[Callable[[SearchContext], Algorithm]]] = Registry(
    "algorithm",
    "nas.algorithms",
    modules=(
        "nas.searching.nsga2",
        "nas.searching.random_search",
        "nas.searching.regularized_evolution",
        "nas.searching.local_search",
        "nas.searching.surrogate",
    ),
)
