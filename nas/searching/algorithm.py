"""The protocol of search algorithms, their context and registry, and random search.

The state of an algorithm is a function of the results that it received, in order of submission.
Proposal t depends on that state and on a random generator that is derived from (seed, t). Therefore
the same results give the same proposals, and a resumed run restores the state from its results.
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

# The purpose of a random generator: to draw a proposal, or to break ties when results arrive.
PROPOSE: Final = 0
TELL: Final = 1

# Number of failed attempts in a row after which an offspring gets one more mutation.
PATIENCE: Final = 8
MAX_STRENGTH: Final = 5  # most mutations of an offspring
# Number of failed attempts in a row after which half of the attempts are random samples.
SAMPLE_AFTER: Final = PATIENCE * (MAX_STRENGTH - 1)


@dataclass(frozen=True)
class SearchContext:
    """Everything that an algorithm may use.

    Attributes:
        operators: the operators that sample, mutate and cross genomes of the search space.
        mechanisms: names and genomes of published mechanisms. The first generation consists of
            these mechanisms and of random samples.
        population: number of proposals in a generation.
        objectives: the objectives of the search, in the order of ``TrialResult.costs``.
        seed: seed of all random generators, see ``generator``.
        filter: computes the normal form of a genome, and decides whether the genome is legal and
            new.
        archive: all results so far, and estimates of the objectives. The archive receives each
            result before the algorithm receives it.
    """

    operators: Variation
    mechanisms: tuple[tuple[str, Genome], ...]
    population: int
    objectives: tuple[Objective, ...]
    seed: int
    filter: CandidateFilter
    archive: Archive

    def generator(self, number: int, purpose: int = PROPOSE) -> np.random.Generator:
        """Return a random generator for a proposal, independent of all other generators.

        Args:
            number: number of the proposal.
            purpose: ``PROPOSE`` for drawing the proposal, or ``TELL`` for breaking ties when its
                result arrives.
        """
        return np.random.default_rng([self.seed, number, purpose])

    def sample(self, rng: np.random.Generator) -> Attempt:
        """Return a random sample of the search space."""
        return Attempt(self.operators.sample(rng), "sample")

    def mutant(self, parent: TrialResult, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Return a mutant of a parent, or a random sample after many failed attempts.

        Args:
            num_failed: number of attempts in a row that gave no legal and new genome. The mutant
                gets one more mutation for every ``PATIENCE`` failures. After ``SAMPLE_AFTER``
                failures, half of the attempts are random samples.
        """
        if num_failed >= SAMPLE_AFTER and rng.random() < 0.5:
            return self.sample(rng)
        strength = min(MAX_STRENGTH, 1 + num_failed // PATIENCE)
        genome, operator = self.operators.mutate(parent.genome, rng, strength)
        # If no mutation applies, the operator returns a sample, which has no parent.
        return Attempt(genome, operator, parents=() if operator == "sample" else (parent.digest,))


class Algorithm(Protocol):
    """Proposes genomes and learns from the results of their trainings.

    An algorithm does not propose the first generation, see ``SearchContext.mechanisms``.
    """

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Receive results of earlier proposals, in order of submission.

        The state must depend only on the results, and not on their division into calls. Algorithms
        that depend on the division document it: NSGA-II selects survivors once in each call.
        """
        ...

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Return a genome to train. This method must not change the state of the algorithm.

        If ``operator`` of the returned attempt is ``REPEAT``, its genome is a known mechanism,
        which is trained again.

        Args:
            rng: the only source of random numbers.
            num_failed: number of earlier attempts for this proposal. None of them gave a legal and
                new genome.
        """
        ...


ALGORITHMS: Final[Registry[Callable[[SearchContext], Algorithm]]] = Registry(
    "algorithm",
    "nas.algorithms",
    modules=(
        "nas.searching.nsga2",
        "nas.searching.regularized_evolution",
        "nas.searching.local_search",
        "nas.searching.surrogate",
    ),
)


@ALGORITHMS.register("random")
class RandomSearch:
    """Random search, the baseline of all algorithms: each proposal is a sample of the space.

    Li and Talwalkar 2019, "Random search and reproducibility for neural architecture search".
    """

    def __init__(self, context: SearchContext) -> None:
        self._context = context

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Ignore the results."""

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Return a random sample of the search space."""
        return self._context.sample(rng)
