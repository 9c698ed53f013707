"""Plan which mechanisms an explanation compares with the explained mechanism.

Single edits are mechanisms that differ from the explained mechanism in one part. A path is a
sequence of mechanisms from standard attention to the explained mechanism, each one edit from the
mechanism before it. Controls are standard attention with fewer heads or narrower keys, at a
similar number of multiply-adds or parameters: they show what the lower cost alone changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from nas.costs import CostContext, costs_of, size_costs
from nas.evaluation.study import why_not
from nas.explaining.edits import Edit, ablations, steps
from nas.genome import ALL, FLAGS, LABELS, Genome, Projections, Visibility
from nas.genome.mechanisms import mechanism
from nas.genome.primitives.base import STREAM_OF_PORT
from nas.genome.types import infer
from nas.space.rules import Policy, validate
from nas.tasks import ModelTask

if TYPE_CHECKING:
    from nas.compiler import ResolvedGenome

    Steps = list[tuple[str, Edit]]

Part: TypeAlias = Literal["edits", "path", "controls"]
STANDARD: Final = "mha"
BEAM: Final = 4  # number of genomes that the search for a path keeps after each step
MOST_STEPS: Final = 40
_LABELS: Final = ("q_heads", "kv_heads", "qk_dim")


@dataclass(frozen=True)
class Bounds:
    """The path rules (policy) and the task that limit which genomes may be compared."""

    policy: Policy
    task: ModelTask

    def key(self, genome: Genome) -> str:
        """Return the digest of a genome with all sizes set to those of the task."""
        return self.task.resolve(genome).key

    def admitted(self, genome: Genome) -> ResolvedGenome | None:
        """Return a genome with the task's sizes, in normal form; None if it may not be trained."""
        if infer(genome).problems or validate(genome, self.policy) or why_not(genome, self.task):
            return None
        resolved = self.task.resolve(genome)
        return None if validate(resolved.genome, self.policy) else resolved

    def distinct(self, edits: Iterable[Edit], known: Iterable[str]) -> Iterator[tuple[str, Edit]]:
        """Yield the edits that lead to different legal mechanisms, each after its mechanism's key.

        The genomes of the yielded edits are in normal form.

        Args:
            known: keys of mechanisms that are left out.
        """
        keys = set(known)
        for edit in edits:
            resolved = self.admitted(edit.genome)
            if resolved is not None and resolved.key not in keys:
                keys.add(resolved.key)
                yield resolved.key, replace(edit, genome=resolved.genome)


@dataclass(frozen=True)
class Comparison:
    """Two mechanisms that are trained with the same seeds.

    Attributes:
        part: part of the explanation: "edits", "path" or "controls".
        words: description of the edit that changes the first mechanism into the second.
        before: key of the first mechanism.
        after: key of the second mechanism.
    """

    part: Part
    words: str
    before: str
    after: str

    @property
    def pair(self) -> tuple[str, str]:
        """Both keys, sorted, so that each pair is compared once."""
        return (self.before, self.after) if self.before < self.after else (self.after, self.before)


@dataclass(frozen=True)
class Explanation:
    """The mechanisms to train and their comparisons.

    Attributes:
        source: key of the explained mechanism.
        mechanisms: genomes in normal form, by key.
        comparisons: comparisons with edited mechanisms, then along the path, then with controls.
        has_path: whether a path from standard attention was found.
    """

    source: str
    mechanisms: Mapping[str, Genome]
    comparisons: tuple[Comparison, ...]
    has_path: bool


def plan_explanation(genome: Genome, bounds: Bounds, context: CostContext) -> Explanation:
    """Return the mechanisms to train and to compare in order to explain a legal mechanism.

    Args:
        context: sizes and options at which costs are computed, to select the controls.

    Raises:
        GenomeError: the mechanism cannot be built at the task's sizes.
    """
    resolved = bounds.task.resolve(genome)
    genome, source = resolved.genome, resolved.key
    mechanisms, comparisons = {source: genome}, []
    for key, edit in bounds.distinct(ablations(genome), [source]):
        mechanisms[key] = edit.genome
        comparisons.append(Comparison("edits", edit.words, source, key))
    standard = bounds.admitted(mechanism(STANDARD).genome)
    path = None if standard is None else find_path(genome, bounds)
    if standard is not None:
        before = standard.key
        mechanisms.setdefault(before, standard.genome)
        for key, edit in path or ():
            mechanisms.setdefault(key, edit.genome)
            comparisons.append(Comparison("path", edit.words, before, key))
            before = key
        for key, edit in _controls(genome, source, bounds, context):
            mechanisms.setdefault(key, edit.genome)
            comparisons.append(Comparison("controls", edit.added, source, key))
    return Explanation(source, mechanisms, tuple(comparisons), path is not None)


def find_path(target: Genome, bounds: Bounds) -> Steps | None:
    """Return the edits that lead from standard attention to a mechanism, with their keys.

    A beam search edits the mechanism towards standard attention and keeps the few nearest genomes
    after each step. Its edits are then reversed.

    Args:
        target: the mechanism in normal form.

    Returns:
        Edits, each with the key of the mechanism that it leads to. The list is empty for standard
        attention itself; the result is None if no path was found.
    """
    standard, first = bounds.key(mechanism(STANDARD).genome), bounds.key(target)
    if first == standard:
        return []
    beam: list[tuple[str, Genome, Steps]] = [(first, target, [])]
    visited = {first}
    for _ in range(MOST_STEPS):
        candidates: list[tuple[str, Genome, Steps]] = []
        for before, genome, later_steps in beam:
            for key, edit in bounds.distinct(steps(genome), visited):
                path = [(before, edit.undone(genome)), *later_steps]
                if key == standard:
                    return path
                visited.add(key)
                candidates.append((key, edit.genome, path))
        candidates.sort(key=lambda candidate: _distance(candidate[1]))
        beam = candidates[:BEAM]
    return None


def _distance(genome: Genome) -> int:
    """Return the approximate number of edits from a genome in normal form to standard attention."""
    plain, actual, typing = Projections(), genome.projections, infer(genome)
    edits: int = sum(getattr(actual, name) != getattr(plain, name) for name in (*FLAGS, *LABELS))
    edits += (genome.placement != ALL) + (genome.visibility != Visibility())
    usual = [node.op for node in mechanism(STANDARD).genome.nodes]
    for index, node in enumerate(genome.nodes):
        if node.op in usual:
            usual.remove(node.op)
        else:
            edits += 1
        edits += len(node.params)
        for ref, port in zip(node.inputs, typing.signatures[index].inputs, strict=True):
            edits += isinstance(ref, str) and STREAM_OF_PORT.get(port.name, ref) != ref
    return edits + len(usual)


def _controls(
    genome: Genome, source: str, bounds: Bounds, context: CostContext
) -> Iterator[tuple[str, Edit]]:
    """Yield standard attention, and the variants of it whose costs are most similar to a genome.

    Nothing is yielded if the genome is standard attention.
    """
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
    """Yield standard attention, then its variants with fewer heads or narrower keys."""
    genome, plain = mechanism(STANDARD).genome, Projections()
    for labels in product(*(LABELS[name] for name in _LABELS)):
        values: dict[str, Any] = dict(zip(_LABELS, labels, strict=True))
        changed = [f"{n}={v}" for n, v in values.items() if v != getattr(plain, n)]
        text = f"{STANDARD}:{','.join(changed)}" if changed else STANDARD
        yield Edit("", text, replace(genome, projections=replace(plain, **values)))
