"""The contract of a search algorithm: what it proposes, what it learns, and the registry.

The state of an algorithm is a function of the results it was given, in order of submission;
proposal t comes from that state and a random generator derived from (seed, t). So the same record
gives the same proposals, and resuming a run is reading its record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np

from nas.common.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nas.common.objectives import Objective
    from nas.genome import Genome
    from nas.searching.archive import Archive
    from nas.searching.filtering import CandidateFilter
    from nas.space.variation import Variation
    from nas.store import Proposal

# The purpose of a generator: to draw a proposal, or to break ties when results are given.
PROPOSE: Final = 0
TELL: Final = 1

REPEAT: Final = "repeat"  # the operator of a re-evaluation, which trains a known mechanism again
# One number an objective, lower is better.
Costs: TypeAlias = "tuple[float, ...]"

# Failed attempts in a row after which an offspring is mutated harder, and after which half of the
# attempts are fresh samples.
PATIENCE: Final = 8
MAX_STRENGTH: Final = 5
SAMPLE_AFTER: Final = PATIENCE * (MAX_STRENGTH - 1)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A genome that an operator made.

    Attributes:
        operator: its name.
        name: of a published mechanism.
        parents: digests of the genomes that it was made from.
    """

    genome: Genome
    operator: str
    name: str | None = None
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a proposal, as an algorithm receives it.

    Attributes:
        number: of the proposal, from 0.
        key: digest resolved at the task's sizes, equal for all trainings of one mechanism.
        costs: the objectives, means over this proposal's trainings; None if one failed or missed a
            gate of its task.
        trainings: the objectives of each training; those of one that missed a gate are the worst
            possible.
        known_costs: counted and predicted costs by name.
        is_repeat: whether it re-evaluates a known mechanism; the archive learns from it anyway.
    """

    number: int
    genome: Genome
    digest: str
    key: str
    costs: Costs | None
    trainings: tuple[Costs, ...] = ()
    known_costs: Mapping[str, float] = field(default_factory=dict)
    is_repeat: bool = False

    @classmethod
    def of(
        cls, proposal: Proposal, trainings: Sequence[Costs] | None, *, is_ok: bool = True
    ) -> TrialResult:
        """The result of a proposal.

        Args:
            trainings: the objectives of each training; None if one failed.
            is_ok: whether no training missed a gate.
        """
        columns = zip(*trainings, strict=True) if trainings else ()
        return cls(
            number=proposal.number,
            genome=proposal.genome,
            digest=proposal.digest,
            key=str(proposal.key),
            costs=tuple(map(fmean, columns)) if trainings and is_ok else None,
            trainings=tuple(trainings or ()),
            known_costs=proposal.costs,
            is_repeat=proposal.is_repeat,
        )


@dataclass(frozen=True)
class SearchContext:
    """What an algorithm is made from.

    Attributes:
        mechanisms: (name, genome), proposed first; samples complete the first generation.
        population: proposals a generation.
        seed: of every draw; see ``generator``.
        filter: resolves an attempt and says whether it is legal and new.
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
        """The generator of one proposal: draws for one never shift those for another."""
        return np.random.default_rng([self.seed, number, purpose])

    def sample(self, rng: np.random.Generator) -> Attempt:
        """A fresh sample of the space."""
        return Attempt(self.operators.sample(rng), "sample")

    def mutant(self, parent: TrialResult, rng: np.random.Generator, num_failed: int) -> Attempt:
        """A mutant, stronger the more attempts have failed; in the end half are samples."""
        if num_failed >= SAMPLE_AFTER and rng.random() < 0.5:
            return self.sample(rng)
        strength = min(MAX_STRENGTH, 1 + num_failed // PATIENCE)
        genome, operator = self.operators.mutate(parent.genome, rng, strength)
        # Where no operator applies, variation gives a sample, which has no parent.
        return Attempt(genome, operator, parents=() if operator == "sample" else (parent.digest,))


class Algorithm(Protocol):
    """Proposes genomes and learns from their results.

    The first generation is not asked of it: named mechanisms, then samples. Contract: ``tell``
    receives results in order of submission, several at a time; their division into calls changes
    nothing, except as an algorithm states (NSGA-II selects survivors a generation at a time).
    ``propose`` draws from ``rng`` alone and changes no state.
    """

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Learn the results of earlier proposals."""
        ...

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Draw an attempt after ``num_failed`` consecutive attempts without a new mechanism.

        The operator ``REPEAT`` asks for another training of a known mechanism.
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
