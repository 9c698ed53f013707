"""Plan the comparisons of an explanation: edits, a path from standard attention, and controls.

Controls are standard attention with fewer heads or narrower keys: the variant with the most similar
number of multiply-adds and the variant with the most similar number of parameters. They separate
the effect of the design from that of the costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from nas.costs import CostContext, costs_of, size_costs
from nas.explaining.edits import Edit, ablations
from nas.explaining.path import STANDARD, path
from nas.genome import LABELS, Genome, Projections
from nas.genome.mechanisms import mechanism

if TYPE_CHECKING:
    from nas.explaining.bounds import Bounds

Part: TypeAlias = Literal["edits", "path", "controls"]
_LABELS: Final = ("q_heads", "kv_heads", "qk_dim")


@dataclass(frozen=True)
class Comparison:
    """Two mechanisms that are trained with the same seeds, by key.

    Attributes:
        words: description of the edit from ``before`` to ``after``.
    """

    part: Part
    words: str
    before: str
    after: str

    @property
    def pair(self) -> tuple[str, str]:
        """The two keys in order, so that each pair is compared once."""
        return (self.before, self.after) if self.before < self.after else (self.after, self.before)


@dataclass(frozen=True)
class Explanation:
    """The mechanisms to train and their comparisons.

    Attributes:
        source: key of the explained mechanism.
        mechanisms: genomes in normal form, by key.
        comparisons: comparisons of edits, then of the path, then of controls.
        has_path: whether a path from standard attention was found.
    """

    source: str
    mechanisms: Mapping[str, Genome]
    comparisons: tuple[Comparison, ...]
    has_path: bool


def plan_explanation(genome: Genome, bounds: Bounds, context: CostContext) -> Explanation:
    """Plan the comparisons of a legal mechanism.

    Raises:
        GenomeError: it does not exist at the task's sizes.
    """
    resolved = bounds.task.resolve(genome)
    genome, source = resolved.genome, resolved.key
    mechanisms, comparisons = {source: genome}, []
    for key, edit in bounds.distinct(ablations(genome), [source], repairs=True):
        mechanisms[key] = edit.genome
        comparisons.append(Comparison("edits", edit.words, source, key))
    standard = bounds.admitted(mechanism(STANDARD).genome)
    steps = None if standard is None else path(genome, bounds)
    if standard is not None:
        before = standard.key
        mechanisms.setdefault(before, standard.genome)
        for key, edit in steps or ():
            mechanisms.setdefault(key, edit.genome)
            comparisons.append(Comparison("path", edit.words, before, key))
            before = key
        for key, edit in _controls(genome, source, bounds, context):
            mechanisms.setdefault(key, edit.genome)
            comparisons.append(Comparison("controls", edit.added, source, key))
    return Explanation(source, mechanisms, tuple(comparisons), steps is not None)


def _controls(
    genome: Genome, source: str, bounds: Bounds, context: CostContext
) -> Iterator[tuple[str, Edit]]:
    """Standard attention and its variants of most similar costs; none for standard attention."""
    forms = list(bounds.distinct(_narrowed(), [source]))
    if not forms or forms[0][1].added != STANDARD:
        return
    controls = {forms[0][0]: forms[0][1]}
    costs = costs_of(context.resolve(genome), context, size_costs())
    resolved = [context.resolve(edit.genome) for _, edit in forms]
    for name in size_costs():
        gaps = [abs(costs_of(form, context, [name])[name] - costs[name]) for form in resolved]
        key, edit = forms[gaps.index(min(gaps))]
        controls[key] = edit
    yield from controls.items()


def _narrowed() -> Iterator[Edit]:
    """Standard attention, then its variants with fewer heads or narrower keys."""
    genome, plain = mechanism(STANDARD).genome, Projections()
    for labels in product(*(LABELS[name] for name in _LABELS)):
        values: dict[str, Any] = dict(zip(_LABELS, labels, strict=True))
        changed = [f"{n}={v}" for n, v in values.items() if v != getattr(plain, n)]
        text = f"{STANDARD}:{','.join(changed)}" if changed else STANDARD
        yield Edit("", text, replace(genome, projections=replace(plain, **values)))
