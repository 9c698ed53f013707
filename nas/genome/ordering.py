"""The order of a genome's nodes, which is the same for all numberings of the nodes.

Operands that commute are sorted by colour refinement: the colour of a node is a hash of its
operation and of the colours of its operands and readers. Of nodes that still have the same colour,
which are nearly always symmetric, one gets another colour.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from nas.genome import Node, Ref
from nas.genome.primitives import get


def ordered(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes in depth-first order from the last one, with operands before readers."""
    has_choice = any(
        get(node.op).commutes and sum(isinstance(ref, int) for ref in {*node.inputs}) > 1
        for node in nodes
    )
    colours = _colours(nodes) if has_choice else [""] * len(nodes)
    new_index: dict[Any, Ref] = {}
    written: list[Node] = []

    def write(index: int) -> None:
        node, inputs = nodes[index], list(nodes[index].inputs)
        if get(node.op).commutes:
            inputs.sort(key=lambda ref: ref if isinstance(ref, str) else colours[ref])
        for ref in inputs:
            if isinstance(ref, int) and ref not in new_index:
                write(ref)
        new_index[index] = len(written)
        written.append(Node(node.op, tuple(inputs), node.params).renamed(new_index))

    if nodes:
        write(len(nodes) - 1)
    return tuple(written)


def _colours(nodes: Sequence[Node]) -> list[str]:
    """Return a different colour for each node, whatever the order of the nodes."""
    colours: list[str] = []
    for node in nodes:
        colours.append(_hash(node.op, node.params, _operands(node, colours)))
    colours[-1] = _hash("output", colours[-1])
    colours = _refined(nodes, colours)
    while len({*colours}) < len(colours):
        tied = min(colour for colour in colours if colours.count(colour) > 1)
        colours[colours.index(tied)] = _hash("first", tied)
        colours = _refined(nodes, colours)
    return colours


def _refined(nodes: Sequence[Node], colours: list[str]) -> list[str]:
    """Return colours that also depend on those of operands and readers, until none is new."""
    readers: list[list[str]] = [[] for _ in nodes]
    for node, colour in zip(nodes, colours, strict=True):
        for slot, ref in enumerate(node.inputs):
            if isinstance(ref, int):
                readers[ref].append(_hash(colour, 0 if get(node.op).commutes else slot))
    refined = [
        _hash(colour, _operands(node, colours), sorted(read))
        for node, colour, read in zip(nodes, colours, readers, strict=True)
    ]
    return colours if len({*refined}) == len({*colours}) else _refined(nodes, refined)


def _operands(node: Node, colours: Sequence[str]) -> list[str]:
    operands = [ref if isinstance(ref, str) else colours[ref] for ref in node.inputs]
    return sorted(operands) if get(node.op).commutes else operands


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
