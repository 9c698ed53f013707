"""Plan which mechanisms an explanation compares with the explained mechanism.

Single edits are mechanisms that differ from the explained mechanism in one part. Controls are
the reference, also with fewer heads or narrower keys at a similar number of multiply-adds or
parameters: they show what the lower cost alone changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal

from nas.costs import CostContext, costs_of, size_costs
from nas.evaluation.study import why_not
from nas.explaining.edits import Edit, ablations
from nas.genome import LABELS, Genome
from nas.genome.types import infer
from nas.space.rules import Policy, validate
from nas.store.sources import Source
from nas.tasks import ModelTask

if TYPE_CHECKING:
    from nas.compiler import ResolvedGenome


_LABELS: Final = ("q_heads", "kv_heads", "qk_dim")


@dataclass(frozen=True)
class Bounds:
    """The policy and the task that limit which genomes may be compared."""

    policy: Policy
    task: ModelTask

    def admitted(self, genome: Genome) -> ResolvedGenome | None:
        """Return a genome with the task's sizes, in normal form; None if it may not be trained."""
        if infer(genome).problems or validate(genome, self.policy) or why_not(genome, self.task):
            return None
        resolved = self.task.resolve(genome)
        return None if validate(resolved.genome, self.policy) else resolved

    def distinct(self, edits: Iterable[Edit], known: Iterable[str]) -> Iterator[tuple[str, Edit]]:
        """Yield the edits that lead to different legal mechanisms, in normal form after their keys.

        Mechanisms whose keys are ``known`` are left out.
        """
        keys = set(known)
        for edit in edits:
            resolved = self.admitted(edit.genome)
            if resolved is not None and resolved.key not in keys:
                keys.add(resolved.key)
                yield resolved.key, replace(edit, genome=resolved.genome)


@dataclass(frozen=True)
class Change:
    """A mechanism in normal form that is compared with the explained one.

    ``words`` describe the edit or name the control; ``key``: see ``Proposal.key``.
    """

    part: Literal["edits", "controls"]
    words: str
    key: str
    genome: Genome


@dataclass(frozen=True)
class Explanation:
    """The explained mechanism in normal form, its key, and the mechanisms to compare with it."""

    source: str
    genome: Genome
    changes: tuple[Change, ...]

    @property
    def mechanisms(self) -> dict[str, Genome]:
        """All mechanisms to train, by key."""
        return {self.source: self.genome} | {change.key: change.genome for change in self.changes}


def plan_explanation(
    genome: Genome, bounds: Bounds, context: CostContext, reference: Source
) -> Explanation:
    """Return the mechanisms to train and to compare in order to explain a legal mechanism.

    Controls are variants of ``reference``, selected by their costs in ``context``.
    """
    resolved = bounds.task.resolve(genome)
    genome, source = resolved.genome, resolved.key
    changes = [
        Change("edits", edit.words, key, edit.genome)
        for key, edit in bounds.distinct(ablations(genome), [source])
    ]
    changes += [
        Change("controls", edit.added, key, edit.genome)
        for key, edit in _controls(genome, source, bounds, context, reference)
    ]
    return Explanation(source, genome, tuple(changes))


def _controls(
    genome: Genome, source: str, bounds: Bounds, context: CostContext, reference: Source
) -> Iterator[tuple[str, Edit]]:
    """Yield the reference and variants of similar costs; nothing if the genome is the reference."""
    forms = list(bounds.distinct(_narrowed(reference), [source]))
    if not forms or forms[0][1].added != reference.label:
        return
    controls = {forms[0][0]: forms[0][1]}
    costs = costs_of(context.resolve(genome), context, size_costs())
    resolved = [context.resolve(edit.genome) for _, edit in forms]
    for name in size_costs():
        gaps = [abs(costs_of(form, context, [name])[name] - costs[name]) for form in resolved]
        key, edit = forms[gaps.index(min(gaps))]
        controls[key] = edit
    yield from controls.items()


def _narrowed(reference: Source) -> Iterator[Edit]:
    text, genome = reference.label, reference.genome
    yield Edit("", text, genome)
    for labels in product(*(LABELS[name] for name in _LABELS)):
        values: dict[str, Any] = dict(zip(_LABELS, labels, strict=True))
        changed = [f"{n}={v}" for n, v in values.items() if v != getattr(genome.projections, n)]
        named = f"{text}{',' if ':' in text else ':'}{','.join(changed)}"
        yield Edit("", named, replace(genome, projections=replace(genome.projections, **values)))
