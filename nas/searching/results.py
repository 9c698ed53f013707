"""A genome that an algorithm proposes, and the result of its trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final, TypeAlias

from nas.genome import Genome
from nas.store import Proposal

REPEAT: Final = "repeat"  # the operator of a proposal that trains a known mechanism again
# Values of the objectives, in their order. Lower is better: maximised objectives are negated.
Costs: TypeAlias = "tuple[float, ...]"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A genome that an algorithm proposes. It is trained if it is legal and new.

    Attributes:
        operator: how the genome was made, for example "sample" or "crossover".
        name: name of the published mechanism; None if the genome is not a published mechanism.
        parents: digests of the genomes that the operator changed or combined.
    """

    genome: Genome
    operator: str
    name: str | None = None
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a proposal, as an algorithm receives it.

    Attributes:
        number, genome, digest, key, is_repeat, is_target: see ``Proposal``.
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
        """Return the result of a proposal.

        ``trainings`` is None if a training failed. ``is_ok`` is False if a training missed a score
        that its task requires.
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
            is_target=proposal.is_target,
        )
