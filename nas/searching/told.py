"""What an algorithm asks for and what it is told: an attempt, and the result of a proposal."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nas.genome import Genome
    from nas.store import Proposal

REPEAT: Final = "repeat"  # the operator that asks for another training of what is known
# One number an objective, lower is better; None for a candidate whose training failed.
Costs: TypeAlias = "tuple[float, ...]"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A genome that an operator made.

    Attributes:
        operator: what made it.
        name: of the mechanism, where it is a named one.
        parents: digests of the genomes that it was made from.
    """

    genome: Genome
    operator: str
    name: str | None = None
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """A proposal and its result: what an algorithm learns from.

    Attributes:
        number: of the proposal, from 0.
        key: the digest resolved at the task's sizes: equal for trainings of one mechanism.
        costs: the objectives as measured by this proposal's training; None where it failed, or
            missed a gate of its task.
        each: the same of each of the proposal's trainings; where some missed a gate, as bad as can
            be, for those who learn what to keep away from.
        counted: costs by name, known before.
        is_repeat: a known mechanism with another seed; an algorithm may leave it to the archive.
    """

    number: int
    genome: Genome
    digest: str
    key: str
    costs: Costs | None
    each: tuple[Costs, ...] = ()
    counted: Mapping[str, float] = field(default_factory=dict)
    is_repeat: bool = False

    @classmethod
    def of(
        cls, proposal: Proposal, trainings: Sequence[Costs] | None, *, is_ok: bool = True
    ) -> Told:
        """The result of a proposal: the objectives of each training; None where one failed.

        Args:
            is_ok: whether none missed a gate.
        """
        columns = zip(*trainings, strict=True) if trainings else ()
        return cls(
            number=proposal.number,
            genome=proposal.genome,
            digest=proposal.digest,
            key=str(proposal.key),
            costs=tuple(map(fmean, columns)) if trainings and is_ok else None,
            each=tuple(trainings or ()),
            counted=proposal.costs,
            is_repeat=proposal.is_repeat,
        )
