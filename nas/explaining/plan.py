"""Plan the comparisons of an explanation: edits, a path from standard attention, and controls.

Controls are standard attention with fewer heads or narrower keys: the one of most similar
multiply-adds and the one of most similar parameters, to separate merit from cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from nas.costs import costs_of, size_costs
from nas.explaining.edits import Edit, ablations
from nas.explaining.path import STANDARD, path
from nas.genome import LABELS, Projections
from nas.genome.mechanisms import mechanism

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nas.costs import CostContext
    from nas.explaining.bounds import Bounds
    from nas.genome import Genome

Part: TypeAlias = Literal["edits", "path", "controls"]
_LABELS: Final = ("q_heads", "kv_heads", "qk_dim")


@dataclass(frozen=True)
class Comparison:
    """Two mechanisms that are trained with the same seeds, by key.

    Attributes:
        words: the edit from ``before`` to ``after``.
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
        mechanisms: all of them in normal form, by key.
        comparisons: part by part.
        has_path: whether a path from standard attention was found.
    """

    source: str
    mechanisms: Mapping[str, Genome]
    comparisons: tuple[Comparison, ...]
    has_path: bool


def plan_explanation(genome: Genome, bounds: Bounds, setting: CostContext) -> Explanation:
    """Plan the comparisons of a legal mechanism.

    Raises:
        GenomeError: it does not exist at the task's sizes.
    """
    resolved = bounds.task.resolve(genome)
    own, source = resolved.genome, resolved.key
    mechanisms, comparisons = {source: own}, []
    for key, edit in bounds.distinct(ablations(own), [source], repairs=True):
        mechanisms[key] = edit.genome
        comparisons.append(Comparison("edits", edit.words, source, key))
    standard = bounds.admitted(mechanism(STANDARD).genome)
    found = None if standard is None else path(own, bounds)
    if standard is not None:
        before = standard.key
        mechanisms.setdefault(before, standard.genome)
        for key, edit in found or ():
            mechanisms.setdefault(key, edit.genome)
            comparisons.append(Comparison("path", edit.words, before, key))
            before = key
        for key, edit in _controls(own, source, bounds, setting):
            mechanisms.setdefault(key, edit.genome)
            comparisons.append(Comparison("controls", edit.added, source, key))
    return Explanation(source, mechanisms, tuple(comparisons), found is not None)


def _controls(
    own: Genome, source: str, bounds: Bounds, setting: CostContext
) -> Iterator[tuple[str, Edit]]:
    """Standard attention and its forms of most similar costs; none for standard attention."""
    forms = list(bounds.distinct(_narrowed(), [source]))
    if not forms or forms[0][1].added != STANDARD:
        return
    chosen, costs = (
        {forms[0][0]: forms[0][1]},
        costs_of(setting.resolve(own), setting, size_costs()),
    )
    for name in size_costs():
        resolved = [setting.resolve(edit.genome) for _, edit in forms]
        theirs = [costs_of(one, setting, [name])[name] for one in resolved]
        off = [abs(cost - costs[name]) for cost in theirs]
        key, edit = forms[off.index(min(off))]
        chosen[key] = edit
    yield from chosen.items()


def _narrowed() -> Iterator[Edit]:
    """Standard attention, then its forms with fewer heads or narrower keys."""
    genome, plain = mechanism(STANDARD).genome, Projections()
    for labels in product(*(LABELS[name] for name in _LABELS)):
        chosen: dict[str, Any] = dict(zip(_LABELS, labels, strict=True))
        changed = [f"{n}={v}" for n, v in chosen.items() if v != getattr(plain, n)]
        text = f"{STANDARD}:{','.join(changed)}" if changed else STANDARD
        yield Edit("", text, replace(genome, projections=replace(plain, **chosen)))
