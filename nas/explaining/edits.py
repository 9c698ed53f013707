"""Single edits of a mechanism with their descriptions.

An edit removes a part of a mechanism or replaces it by a simpler part: a node is bypassed, a
normaliser becomes ``uniform`` or softmax, a score becomes the dot product, a parameter becomes its
default, a projection is switched on or off, a window is removed. The result may break path rules or
be the same mechanism; nas.explaining.plan leaves such edits out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from nas.genome import ALL, FLAGS, LABELS, Genome, Node, Projections, Ref, Rest, Visibility
from nas.genome.primitives import get
from nas.genome.primitives.base import STREAM_OF_PORT, Role
from nas.genome.types import infer

# Replacements by role: the standard operation, and for normalisers also the control "uniform".
PLAIN: Final = {Role.SCORE: ("scaled_dot_product",), Role.NORMALIZE: ("uniform", "softmax")}


@dataclass(frozen=True)
class Edit:
    """An edited genome, with the names of the removed and the added part; one may be empty."""

    removed: str
    added: str
    genome: Genome

    @property
    def words(self) -> str:
        """A phrase that names the edit."""
        if self.removed and self.added:
            return f"{self.added} in place of {self.removed}"
        return f"without {self.removed}" if self.removed else f"with {self.added}"


def ablations(genome: Genome) -> Iterator[Edit]:
    """Return the edits of a mechanism in normal form that remove or simplify one part."""
    return chain(
        _bypassed(genome),
        _plainer(genome),
        _reset(genome),
        _switched(genome),
        _projected(genome),
        _relabelled(genome),
        _opened(genome),
    )


def _bypassed(genome: Genome) -> Iterator[Edit]:
    """Yield the edits that replace a node by one of its operands of the same type."""
    typing, last = infer(genome), len(genome.nodes) - 1
    for index, node in enumerate(genome.nodes):
        kind, role = typing.of(index).kind, typing.role(index)
        if role is Role.AGGREGATE and all(typing.role(i) is not role for i in range(index)):
            continue  # the only aggregation cannot be removed
        refs = [ref for ref in dict.fromkeys(node.inputs) if typing.of(ref).kind is kind]
        for ref in refs:
            added = f"{_name(genome, ref)} alone" if len(node.inputs) > 1 else ""
            if index < last or isinstance(ref, int):
                yield Edit(_name(genome, index), added, genome.bypassing(index, ref))


def _plainer(genome: Genome) -> Iterator[Edit]:
    typing = infer(genome)
    for index, node in enumerate(genome.nodes):
        for op in PLAIN.get(typing.role(index), ()):
            if op != node.op:
                edited = genome.with_node(index, Node(op, node.inputs))
                yield Edit(_name(genome, index), op, edited)


def _reset(genome: Genome) -> Iterator[Edit]:
    for index, node in enumerate(genome.nodes):
        primitive, params = get(node.op), dict(node.params)
        for name in (name for name in params if name not in primitive.derived):
            default = primitive.parameters[name].default
            kept = tuple(pair for pair in node.params if pair[0] != name)
            part = f"{_name(genome, index)} {name}"
            edited = genome.with_node(index, replace(node, params=kept))
            yield Edit(f"{part}={params[name]}", f"{part}={default}", edited)


def _switched(genome: Genome) -> Iterator[Edit]:
    for flag in FLAGS:
        is_on, part = getattr(genome.projections, flag), f"W_{flag[-1].upper()}"
        edited = _projecting(genome, **{flag: not is_on})
        yield Edit(part, "", edited) if is_on else Edit("", part, edited)


def _projected(genome: Genome) -> Iterator[Edit]:
    """Yield the edits that make an unprojected operand read its usual stream, projected."""
    used = {ref for node in genome.nodes for ref in node.inputs}
    for index, slot, ref, default in _stream_inputs(genome):
        if default not in used and not genome.projections.has_projection(ref):
            edited = genome.with_node(index, genome.nodes[index].reading(slot, default))
            edited = _projecting(edited, **{f"has_w{default}": True})
            yield Edit("", f"W_{default.upper()}", edited)


def _relabelled(genome: Genome) -> Iterator[Edit]:
    for name in LABELS:
        now, default = getattr(genome.projections, name), getattr(Projections(), name)
        if now != default:
            edited = _projecting(genome, **{name: default})
            yield Edit(f"{name}={now}", f"{name}={default}", edited)


def _opened(genome: Genome) -> Iterator[Edit]:
    visibility = genome.visibility
    if visibility.window is not None:
        yield Edit(f"window of {visibility.window}", "", replace(genome, visibility=Visibility()))
    if visibility.global_tokens:
        edited = replace(genome, visibility=replace(visibility, global_tokens=0))
        yield Edit(f"{visibility.global_tokens} global tokens", "", edited)
    placement = genome.placement
    if placement != ALL:
        yield Edit(f"placement={placement}", f"placement={ALL}", replace(genome, placement=ALL))
    plain = Rest(name=placement.rest.name)
    if placement.rest != plain:
        edited = replace(genome, placement=replace(placement, rest=plain))
        yield Edit(f"rest={placement.rest}", f"rest={plain}", edited)


def _stream_inputs(genome: Genome) -> Iterator[tuple[int, int, str, str]]:
    """Yield node, operand and stream (q, k or v) of operands, and the stream they usually read."""
    typing = infer(genome)
    for index, node in enumerate(genome.nodes):
        ports = typing.signatures[index].inputs
        for slot, (ref, port) in enumerate(zip(node.inputs, ports, strict=True)):
            usual = STREAM_OF_PORT.get(port.name)
            if isinstance(ref, str) and usual is not None:
                yield index, slot, ref, usual


def _projecting(genome: Genome, **changed: bool | str) -> Genome:
    projections: Projections = replace(genome.projections, **changed)  # type: ignore[arg-type]
    return replace(genome, projections=projections)


def _name(genome: Genome, ref: Ref) -> str:
    if isinstance(ref, str):
        return ref.upper() if genome.projections.has_projection(ref) else "x"
    op = genome.nodes[ref].op
    is_only = sum(node.op == op for node in genome.nodes) == 1
    return op if is_only else f"{op} (node {ref})"
