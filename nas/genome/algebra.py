"""Algebraic rewriting: simpler genomes that compute the same.

Every rule keeps values, gradients of the remaining parameters and their distribution at the start,
exactly in real arithmetic. A rule proposes genomes with the same node indices. A proposal is
accepted if the remaining nodes keep their types, since a removed operand may have decided the width
of a projection. Each rule reduces live nodes, parameters, unread operands or the distance of a
doubling from the input, so that rewriting ends.

Left as they are:
- A norm of a norm: both learn gains, and the second undoes the first one's only up to its own.
- Two temperatures, or a linear map on either side of an aggregation: equal functions with other
  gradients and another start.
- Rope after rope: a rotation by twice the angle, which no primitive is.
- ``(A + B)·v`` beside ``A·v + B·v`` where a kernel knows A or B: apart they are cheaper, and would
  need a node more.
- ``(A + A)·v`` beside ``A·(v + v)``: they are equal, and recorded runs hold both.
- A sum or product of more than two operands in another order, and doubled results that something
  else reads: a form that is the least in every case would need more nodes than the genome has.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from nas.genome import PLACEMENTS, Genome, Node, Visibility, layers_with_mechanism
from nas.genome.primitives import get
from nas.genome.primitives.base import Kind
from nas.genome.primitives.factors import Sign, Weights
from nas.genome.types import MODEL, head_fraction, infer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nas.genome import ModelSizes, Ref
    from nas.genome.types import Typing

    # From a genome and the index of a live node to equal genomes, the simplest first.
    Rule = Callable[[Genome, int, Typing, ModelSizes | None], Iterator[Genome]]


def rewrite(genome: Genome, sizes: ModelSizes | None = None) -> Genome:
    """Apply the rules until none changes the genome; an ill-typed one is returned unchanged."""
    typing = infer(genome)
    if typing.problems:
        return genome
    while accepted := _step(genome, typing, sizes):
        genome, typing = accepted
    return genome


def _step(genome: Genome, typing: Typing, sizes: ModelSizes | None) -> tuple[Genome, Typing] | None:
    """The first accepted proposal."""
    for rule, index in product(RULES, genome.live()):
        for proposal in rule(genome, index, typing, sizes):
            new_typing = infer(proposal)
            if _is_typed_alike(proposal, new_typing, typing):
                return proposal, new_typing
    for sum_rule, index in product(SUM_RULES, genome.live()):
        if (changed := sum_rule(genome, index)) is not None:
            new_typing = infer(changed)
            if not new_typing.problems and new_typing.nodes[-1] == typing.nodes[-1]:
                return changed, new_typing
    return None


def _is_typed_alike(genome: Genome, new_typing: Typing, old_typing: Typing) -> bool:
    """Whether live nodes keep their types; weights without parameters may have fewer heads."""
    live = genome.live()
    if any(problem.node is None or problem.node in live for problem in new_typing.problems):
        return False
    for index in live:
        new, old = new_typing.of(index), old_typing.of(index)
        if new == old and new_typing.widths[index] == old_typing.widths[index]:
            continue
        learns = get(genome.nodes[index].op).is_parametric
        if learns or Kind.TOKENS in (new.kind, old.kind) or new.kind is not old.kind:
            return False
    read = {ref for i in live for ref in genome.nodes[i].inputs if isinstance(ref, str)}
    return all(new_typing.streams[name] == old_typing.streams[name] for name in read)


def _without(genome: Genome, index: int, ref: Ref) -> Iterator[Genome]:
    """Let readers of a node read ``ref`` instead."""
    if index < len(genome.nodes) - 1:
        yield genome.bypassing(index, ref)
    elif isinstance(ref, int):
        yield replace(genome, nodes=genome.nodes[: ref + 1])


def _cut_unread(
    genome: Genome, index: int, typing: Typing, sizes: ModelSizes | None
) -> Iterator[Genome]:
    """Replace an operand of which only the shape is read by another of the same shape."""
    node, primitive = genome.nodes[index], get(genome.nodes[index].op)
    unread = primitive.unread(primitive.full(node.param_dict()))
    ports = typing.signatures[index].inputs
    read = [r for r, port in zip(node.inputs, ports, strict=True) if port.name not in unread]
    if not read or typing.of(read[0]).heads != typing.of(index).heads:
        return
    for slot, port in enumerate(ports):
        if port.name in unread and node.inputs[slot] != read[0]:
            yield genome.with_node(index, node.reading(slot, read[0]))


def _cut_uniform(
    genome: Genome, index: int, typing: Typing, sizes: ModelSizes | None
) -> Iterator[Genome]:
    """Let a mean read a stream that is read anyway in place of scores, for the number of keys.

    The weights keep the scores' heads, as a parameter if other operands have fewer.
    """
    if genome.nodes[index].op == "uniform":
        for proposal in _means(genome, index, typing.of(index).heads):
            if proposal == genome:
                return
            if _is_typed_alike(proposal, infer(proposal), typing):
                yield proposal
                return


def _means(genome: Genome, index: int, heads: str) -> Iterator[Genome]:
    """Forms of a uniform node, the simplest first."""
    for label in dict.fromkeys(("one", heads)):
        params = () if label == "one" else (("heads", label),)
        for stream in ("v", "k", "q"):
            proposal = genome.with_node(index, Node("uniform", (stream,), params))
            others = (
                proposal.nodes[i] for i in proposal.live() if proposal.nodes[i].op != "uniform"
            )
            if any(stream in other.inputs for other in others):
                yield proposal


def _merge_filters(
    genome: Genome, index: int, typing: Typing, sizes: ModelSizes | None
) -> Iterator[Genome]:
    """Merge two top-k filters into the narrower one, and a filter with softmax.

    Both filters keep all ties at the last rank.
    """
    node = genome.nodes[index]
    below = node.inputs[0] if node.inputs else None
    if node.op not in ("softmax", "topk_softmax", "topk_filter") or not isinstance(below, int):
        return
    filtered = genome.nodes[below]
    if filtered.op == "topk_filter":
        is_plain = node.op == "softmax"
        op = "topk_softmax" if is_plain else node.op
        count = _count(filtered) if is_plain else min(_count(filtered), _count(node))
        params = () if count == get(op).parameters["k"].default else (("k", count),)
        yield genome.with_node(index, Node(op, filtered.inputs, params))


def _drop_wide_filters(
    genome: Genome, index: int, typing: Typing, sizes: ModelSizes | None
) -> Iterator[Genome]:
    """Drop a top-k filter with k at least the number of keys."""
    node = genome.nodes[index]
    if node.op in ("topk_filter", "topk_softmax") and sizes and _count(node) >= sizes.tokens:
        if node.op == "topk_softmax":
            yield genome.with_node(index, Node("softmax", node.inputs))
        else:
            yield from _without(genome, index, node.inputs[0])


def _count(node: Node) -> int:
    return int(str(get(node.op).full(node.param_dict())["k"]))


def _drop_relu(
    genome: Genome, index: int, typing: Typing, sizes: ModelSizes | None
) -> Iterator[Genome]:
    """Drop a rectifier of a result that is never below zero."""
    node = genome.nodes[index]
    if node.op == "relu" and _sign(genome, node.inputs[0]).is_non_negative:
        yield from _without(genome, index, node.inputs[0])


@lru_cache(maxsize=16)
def _signs(nodes: tuple[Node, ...]) -> tuple[Sign, ...]:
    """Provable signs of each node's result, as primitives declare them.

    One pass over the nodes, since a graph of n nodes may hold 2^n paths.
    """
    signs: list[Sign] = []
    for node in nodes:
        operands = [signs[ref] if isinstance(ref, int) else Sign() for ref in node.inputs]
        signs.append(get(node.op).sign(operands, len(node.inputs) > len({*node.inputs})))
    return tuple(signs)


def _sign(genome: Genome, ref: Ref) -> Sign:
    return _signs(genome.nodes)[ref] if isinstance(ref, int) else Sign()


def _fold_zeros(
    genome: Genome, index: int, typing: Typing, sizes: ModelSizes | None
) -> Iterator[Genome]:
    """Simplify sums and products with zeros, such as squared rectifiers of negative distances.

    Scores of zero weights become distances within one stream, so that all of them have one form.
    """
    node = genome.nodes[index]
    if _normalises_to_zero(genome, index, typing):
        yield from _plain_zero(genome, index)
    elif node.op == "add" and typing.of(index).kind is not Kind.SCORES:
        for zero, other in (node.inputs, node.inputs[::-1]):
            if _sign(genome, zero).is_zero and typing.of(other) == typing.of(index):
                yield from _without(genome, index, other)
    elif node.op == "multiply":
        for ref in node.inputs:
            if _sign(genome, ref).is_zero and typing.of(ref) == typing.of(index):
                yield from _without(genome, index, ref)


def _plain_zero(genome: Genome, index: int) -> Iterator[Genome]:
    """Replace the scores of zero weights by distances within the first stream that type-checks.

    Scores that other weights read too are kept.
    """
    below = genome.nodes[index].inputs[0]
    assert isinstance(below, int), "scores are never streams"
    readers = [i for i in genome.live() if below in genome.nodes[i].inputs]
    for stream in ("v", "k", "q"):
        plain = Node("distance", (stream, stream))
        if genome.nodes[below] == plain:
            return
        proposal = genome.with_node(below, plain)
        others = (proposal.nodes[i] for i in proposal.live() if i != below)
        is_zero = all(_sign(proposal, reader).is_zero for reader in readers)
        if is_zero and any(stream in other.inputs for other in others):
            yield proposal


def is_constant(genome: Genome) -> bool:
    """Whether the output of a genome that type-checks is provably the same for every input."""
    fixed: list[bool] = []
    signs = _signs(genome.nodes)
    for index, node in enumerate(genome.nodes):
        primitive = get(node.op)
        reads_fixed = all(isinstance(ref, int) and fixed[ref] for ref in node.inputs)
        reads_tokens = "x" in primitive.extras or not node.inputs
        is_mean = primitive.weights(primitive.full(node.param_dict())) is Weights.MEAN
        is_fixed = signs[index].is_zero or is_mean or (reads_fixed and not reads_tokens)
        fixed.append(is_fixed)
    return fixed[-1]


def _normalises_to_zero(genome: Genome, index: int, typing: Typing) -> bool:
    ports, output = typing.signatures[index].inputs, typing.of(index).kind
    reads_scores = [port.kind for port in ports] == [Kind.SCORES]
    return reads_scores and output is Kind.WEIGHTS and _sign(genome, index).is_zero


def _factor_sum(genome: Genome, index: int) -> Genome | None:
    """A·v + B·v is (A + B)·v, and R q + R k is R (q + k): one call fewer."""
    node = genome.nodes[index]
    first, second = _sole_operands(genome, index)
    if first is None or second is None or first == second:
        return None
    left, right = genome.nodes[first], genome.nodes[second]
    primitive = get(left.op)
    slots = [
        i for i, refs in enumerate(zip(left.inputs, right.inputs, strict=False)) if _differ(refs)
    ]
    if (left.op, left.params) != (right.op, right.params) or len(slots) != 1:
        return None
    port = primitive.signatures[0].inputs[slots[0]].name
    if primitive.is_parametric or not primitive.is_additive or port not in primitive.homogeneous:
        return None
    place = max(first, second)  # where both operands are known
    added = Node(node.op, (left.inputs[slots[0]], right.inputs[slots[0]]))
    if any(_has_kernel(genome, ref) for ref in added.inputs):
        return None
    return genome.with_node(place, added).with_node(index, left.reading(slots[0], place))


def _double_operand(genome: Genome, index: int) -> Genome | None:
    """f(v) + f(v) is f(v + v); of an aggregation the values are doubled."""
    first, second = _sole_operands(genome, index)
    if first is None or first != second:
        return None
    doubled = genome.nodes[first]
    primitive = get(doubled.op)
    if not primitive.homogeneous:
        return None
    slot = [port.name for port in primitive.signatures[0].inputs].index(primitive.homogeneous[-1])
    added = Node("add", (doubled.inputs[slot],) * 2)
    return genome.with_node(first, added).with_node(index, doubled.reading(slot, first))


def _has_kernel(genome: Genome, ref: Ref) -> bool:
    """Whether values can be summed with these weights without a tensor of all weights."""
    if isinstance(ref, str):
        return False
    primitive = get(genome.nodes[ref].op)
    return primitive.weights(primitive.full(genome.nodes[ref].param_dict())) is not None


def _sole_operands(genome: Genome, index: int) -> tuple[int | None, int | None]:
    """The operands of a sum that nothing else reads; None for others."""
    node = genome.nodes[index]
    if node.op != "add":
        return None, None
    first, second = (
        ref if isinstance(ref, int) and {*_readers(genome, ref)} == {index} else None
        for ref in node.inputs
    )
    return first, second


def _readers(genome: Genome, ref: Ref) -> list[int]:
    """The live nodes that read a node."""
    return [index for index in genome.live() if ref in genome.nodes[index].inputs]


def _differ(refs: tuple[Ref, Ref]) -> bool:
    return refs[0] != refs[1]


def with_cut_heads(genome: Genome, sizes: ModelSizes | None = None) -> Genome:
    """A mechanism on whole tokens as the same one on tokens that are cut into heads.

    Where each feature is treated alone and alike, it does not matter whether a stream is one head
    as wide as the model (``raw: shared``, or one head under ``merge: sum``) or all heads side by
    side: projections have the same shapes and the same start.

    Args:
        sizes: at which a label may mean one head; None for labels that mean it at every size.
    """
    typing, live = infer(genome), genome.live()
    if typing.problems or not all(get(genome.nodes[i].op).is_featurewise for i in live):
        return genome
    read = {ref for i in live for ref in genome.nodes[i].inputs if isinstance(ref, str)}
    types = [*map(typing.of, live), *map(typing.of, read)]
    if any(not _is_one_head(t.heads, sizes) or t.width not in (None, MODEL) for t in types):
        return genome
    cut = replace(genome.projections, q_heads="all", kv_heads="all", raw="slice", merge="concat")
    return replace(genome, projections=cut)


def _is_one_head(label: str, sizes: ModelSizes | None) -> bool:
    return label == "one" or (sizes is not None and head_fraction(label) * sizes.heads <= 1)


# Of a sum or an aggregation the genome that may stand in its genome's place.
SUM_RULES: tuple[Callable[[Genome, int], Genome | None], ...] = (
    _factor_sum,
    _double_operand,
)

RULES: tuple[Rule, ...] = (
    _cut_uniform,
    _cut_unread,
    _merge_filters,
    _drop_wide_filters,
    _drop_relu,
    _fold_zeros,
)


def plain_visibility(
    visibility: Visibility, tokens: int | None = None, is_causal: bool | None = None
) -> Visibility:
    """The normal form of a mask.

    Args:
        tokens: the length; None for a form that is right at every length.
        is_causal: whether every call is (a window of w reaches w - 1 tokens back) or none is (w //
            2 to either side); None for a form that is right in both cases.
    """
    window, apart = visibility.window, None if tokens is None else tokens - visibility.global_tokens
    if window is None or (apart is not None and _covers(window, apart, is_causal)):
        return Visibility()
    if window > 1 and (is_causal is False or (is_causal is None and apart and window > apart)):
        window -= window % 2
    return replace(visibility, window=window)


def _covers(window: int, apart: int, is_causal: bool | None) -> bool:
    """Whether ``apart`` tokens, none of them global, all see each other."""
    behind, aside = window >= apart, window // 2 >= apart - 1
    return (behind or is_causal is False) and (aside or is_causal is True)


def plain_placement(placement: str, depth: int) -> str:
    """The first placement with the same layers."""
    layers = layers_with_mechanism(placement, depth)
    return next(name for name in PLACEMENTS if layers_with_mechanism(name, depth) == layers)
