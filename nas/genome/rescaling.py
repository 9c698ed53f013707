"""Factors of tokens or scores that have no effect, and the order of operations that multiply.

A factor is a positive number for each token and head, or for each query and head of scores. Cosine
scores, for example, do not depend on factors of queries and keys.
"""

from __future__ import annotations

from collections.abc import Iterator

from nas.genome import Genome, Node
from nas.genome.primitives import Kind, get
from nas.genome.primitives.base import Primitive


def without_factor(genome: Genome, index: int, slot: int) -> Iterator[Genome]:
    """Yield the genome in which the operand of a node is computed without a factor, if it has one.

    The factor may precede operations that pass it on, if no other node reads their results.

    Args:
        index, slot: the node, and the index of its operand, on whose factors it does not depend.
    """
    ref = genome.nodes[index].inputs[slot]
    while isinstance(ref, int):
        node = genome.nodes[ref]
        if get(node.op).is_rescaling:
            yield genome.with_node(index, genome.nodes[index].reading(slot, node.inputs[0]))
            return
        if not _passes_factors(get(node.op)) or _readers(genome, ref) != [index]:
            return
        index, slot, ref = ref, 0, node.inputs[0]


def first_rescaled(genome: Genome, index: int) -> Iterator[Genome]:
    """Yield the genome in which a node's factor precedes an operation that keeps lengths."""
    node = genome.nodes[index]
    below = node.inputs[0]
    if not get(node.op).is_rescaling or isinstance(below, str):
        return
    turned = genome.nodes[below]
    if get(turned.op).is_isometric and _readers(genome, below) == [index]:
        moved = genome.with_node(below, Node(node.op, turned.inputs, node.params))
        yield moved.with_node(index, Node(turned.op, (below,), turned.params))


def _passes_factors(primitive: Primitive) -> bool:
    """Return whether the result has the factors of the first operand."""
    if primitive.factors is not None:
        return primitive.factors.is_plain
    if primitive.score_change is not None:
        return primitive.score_change.factor is not None
    (signature, *others) = primitive.signatures
    is_map = not others and [port.kind for port in signature.inputs] == [Kind.TOKENS]
    return is_map and bool(primitive.homogeneous) and not primitive.needs_all_tokens


def _readers(genome: Genome, ref: int) -> list[int]:
    return [index for index in genome.live() if ref in genome.nodes[index].inputs]
