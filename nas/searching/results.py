"""A genome that an algorithm proposes, and the result of its trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final, TypeAlias

from nas.genome import Genome
from nas.store import Proposal

REPEAT: Final = "repeat"  # the operator of a re-evaluation, which trains a known mechanism again
# One number for each objective; lower is better.
Costs: TypeAlias = "tuple[float, ...]"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A genome that an operator made.

    Attributes:
        operator: name of the operator.
        name: name of the published mechanism, if it is one.
        parents: digests of the parent genomes.
    """

    genome: Genome
    operator: str
    name: str | None = None
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a proposal, as an algorithm receives it.

    Attributes:
        number: number of the proposal, from 0.
        key: digest resolved at the task's sizes, equal for all trainings of one mechanism.
        costs: the objectives, means over this proposal's trainings; None if one failed or missed a
            gate of its task.
        trainings: the objectives of each training. A training that missed a gate has the worst
            possible ones.
        known_costs: counted and predicted costs by name.
        is_repeat: whether it re-evaluates a known mechanism; the archive uses these results too.
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
