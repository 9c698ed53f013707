"""The protocol of search algorithms, the data that they use, and their registry.

A proposal is a genome to train. Proposal t depends only on the results that the algorithm received
before, in order of submission, and on a random generator that is derived from (seed, t). Therefore
a resumed run, which passes on the recorded results again, continues with the same proposals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import le
from statistics import fmean
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np

from nas.common.objectives import Objective, limits_of
from nas.common.registry import Registry
from nas.genome import Genome
from nas.space.vary import Variation
from nas.store import Proposal

if TYPE_CHECKING:
    from nas.searching.archive import Archive
    from nas.searching.filtering import CandidateFilter

# The purpose of a random generator: to draw a proposal, to break ties when results arrive, or to
# draw offspring from which several proposals are selected.
PROPOSE: Final = 0
TELL: Final = 1
DRAW: Final = 2

NUM_NEIGHBOURS: Final = 8  # mutants of which one is proposed in the first generation
REPEAT: Final = "repeat"  # operator of a proposal that trains a known mechanism again

# A new mechanism with a cost above this multiple of its limit is drawn again, since it cannot enter
# the front: such mechanisms took half of the time of a search.
MOST_BEYOND: Final = 2.0

# Number of failed attempts in a row after which an offspring gets one more mutation.
PATIENCE: Final = 8
MAX_STRENGTH: Final = 5  # most mutations of an offspring
# Number of failed attempts in a row after which half of the attempts are random samples.
SAMPLE_AFTER: Final = PATIENCE * (MAX_STRENGTH - 1)

# Values of the objectives, in their order. Lower is better: maximised objectives are negated.
Costs: TypeAlias = "tuple[float, ...]"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A genome to train if it is legal and new, with fields as in `Proposal`."""

    genome: Genome
    operator: str
    name: str | None = None
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a proposal, as an algorithm receives it; see `Proposal` for the other fields.

    Attributes:
        costs: values of the objectives, as means over the trainings of this proposal. None if a
            training failed or missed a score that its task requires.
        trainings: values of the objectives of each training. A training that missed a score that
            its task requires has the worst possible metrics.
        known_costs: all costs that need no training, by name.
    """

    number: int
    genome: Genome
    digest: str
    key: str
    costs: Costs | None
    trainings: tuple[Costs, ...] = ()
    known_costs: Mapping[str, float] = field(default_factory=dict)
    is_repeat: bool = False
    is_target: bool = False

    @classmethod
    def of(
        cls, proposal: Proposal, trainings: Sequence[Costs] | None, *, is_ok: bool = True
    ) -> TrialResult:
        """Return the result of a proposal; ``trainings`` is None if one of them failed.

        ``is_ok`` is False if a training missed a score that its task requires.
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
            is_repeat=proposal.verdict == "repeated",
            is_target=proposal.is_target,
        )


@dataclass(frozen=True)
class SearchContext:
    """The search space, results and settings that a search algorithm may use.

    Attributes:
        mechanisms: names and genomes of published mechanisms. The first generation consists of
            these mechanisms and of mutants of them.
        population: number of proposals in a generation.
        archive: all results so far. It receives each result before the algorithm does.
        lag: see ``SearchConfig``; None: complete generations.
    """

    operators: Variation
    mechanisms: tuple[tuple[str, Genome], ...]
    population: int
    objectives: tuple[Objective, ...]
    seed: int
    filter: CandidateFilter
    archive: Archive
    lag: int | None = None

    @property
    def batch(self) -> int:
        """Smallest number of results that are passed to archive and algorithm together."""
        if self.lag is None:
            return self.population
        return max(1, min(self.population, self.lag // 2))

    def generator(self, number: int, purpose: int = PROPOSE) -> np.random.Generator:
        """Return a random generator for a proposal, independent of all other generators."""
        return np.random.default_rng([self.seed, number, purpose])

    def inside(self, results: Iterable[TrialResult]) -> list[tuple[TrialResult, Costs]]:
        """Return the successful results inside all limits, or else all successful, with costs."""
        limits = limits_of(self.objectives)
        rows = [(result, result.costs) for result in results if result.costs is not None]
        inside = [row for row in rows if all(map(le, row[1], limits))]
        return inside or rows

    def is_affordable(self, genome: Genome) -> bool:
        """Whether no cost that needs no training is far beyond its limit (``MOST_BEYOND``)."""
        known = self.filter.inspect(genome).costs
        limits = {o.name: o.limit for o in self.objectives if o.limit is not None}
        return all(
            known[name] <= max(limit, MOST_BEYOND * limit)  # a cost of a plug-in may be negative
            for name, limit in limits.items()
            if name in known
        )

    def initial(
        self, rng: np.random.Generator, num_failed: int, counts: Mapping[str, int]
    ) -> Attempt:
        """Return a genome of the first generation: one mutation of a random named mechanism.

        Of several mutants, the one with the primitive that is in the fewest earlier proposals
        (``counts``) is returned, so that the generation measures single changes with many
        primitives. Without named mechanisms, or after many failed attempts, it is a random genome.
        """
        if not self.mechanisms or num_failed >= SAMPLE_AFTER:
            return self.sample(rng)
        strength = 1 + num_failed // PATIENCE
        mutants = []
        for _ in range(NUM_NEIGHBOURS):
            _, genome = self.mechanisms[int(rng.integers(len(self.mechanisms)))]
            mutant, _ = self.operators.mutate(genome, rng, strength)
            mutants.append(self.filter.inspect(mutant))
        new = [mutant for mutant in mutants if mutant.is_new]
        rarest = min(
            new or mutants, key=lambda m: min(counts.get(node.op, 0) for node in m.genome.nodes)
        )
        return Attempt(rarest.genome, "neighbour")

    def sample(self, rng: np.random.Generator) -> Attempt:
        """Return a random genome of the search space."""
        return Attempt(self.operators.sample(rng), "sample")

    def mutant(self, parent: TrialResult, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Return a mutant of a parent genome, or a random genome after many failed attempts."""
        if num_failed >= SAMPLE_AFTER and rng.random() < 0.5:
            return self.sample(rng)
        strength = min(MAX_STRENGTH, 1 + num_failed // PATIENCE)
        genome, operator = self.operators.mutate(parent.genome, rng, strength)
        # If no mutation applies, the operator returns a sample, which has no parent.
        return Attempt(genome, operator, parents=() if operator == "sample" else (parent.digest,))


class Algorithm(Protocol):
    """Proposes genomes after the first generation, and learns from the results of trainings.

    A class attribute ``lag`` is the lag of searches that set none, or a generation if that is
    smaller. Without it, their proposals are computed from the results of complete generations.
    """

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Receive results of earlier proposals, in order of submission.

        The algorithm must end in the same state whether the results arrive in one call or in
        several. Algorithms that differ document it: NSGA-II selects survivors once in each call.
        """

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Return a genome to train, without a change of the algorithm's state.

        The operator ``REPEAT`` trains a mechanism of the run again with another seed. ``rng`` is
        the only source of random numbers. ``num_failed`` is the number of earlier attempts for this
        proposal, none of them legal and new.
        """


ALGORITHMS: Final[Registry[Callable[[SearchContext], Algorithm]]] = Registry(
    "algorithm",
    "nas.algorithms",
    modules=("nas.searching.nsga2", "nas.searching.baselines", "nas.searching.surrogate"),
)
