"""Algebraic rewriting: simpler genomes that compute the same function.

Every rule preserves values, gradients of the remaining parameters and their initial distribution,
exactly in real arithmetic. A rule proposes genomes with the same node indices. A proposal is
accepted if the remaining nodes keep their types, since a removed operand may have decided the width
of a projection. Each rule reduces live nodes, parameters, unread operands or the distance of a
doubling from the input, so that rewriting terminates.

Not rewritten:
- A norm of a norm: both learn gains, and the second norm cancels only the scale of the first.
- Two temperatures, or a linear map on either side of an aggregation: the functions are equal, but
  gradients and initial distributions differ.
- RoPE after RoPE: no primitive rotates by twice the angle.
- ``(A + B)·v`` and ``A·v + B·v`` where A or B has a fused kernel: the second form is cheaper and
  has one node more.
- ``(A + A)·v`` and ``A·(v + v)``: recorded runs contain both forms.
- The order of a sum or product of more than two operands, and doubled results with further
  readers: a unique normal form would need more nodes than the genome has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from nas.genome import PLACEMENTS, Genome, ModelSizes, Node, Ref, Visibility, layers_with_mechanism
from nas.genome.primitives import get
from nas.genome.primitives.base import Kind
from nas.genome.primitives.factors import Sign, Weights
from nas.genome.types import MODEL, Typing, head_fraction, infer

if TYPE_CHECKING:
    Rule = Callable[[Genome, int, Typing, ModelSizes | None], Iterator[Genome]]


def rewrite(genome: Genome, sizes: ModelSizes | None = None) -> Genome:
    """Apply the rules until none changes the genome; an ill-typed genome is returned unchanged."""
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
    """Whether live nodes keep their types; parameter-free scores and weights may lose heads."""
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
    """Replace a node by ``ref`` in the inputs of its readers."""
    if index < len(genome.nodes) - 1:
        yield genome.bypassing(index, ref)
    elif isinstance(ref, int):
        yield replace(genome, nodes=genome.nodes[: ref + 1])


def _cut_unread(
    genome: Genome, index: int, typing: Typing, sizes: ModelSizes | None
) -> Iterator[Genome]:
    """Replace an operand whose values are unread by another operand of the same shape."""
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
    """Replace the operand of a mean by a stream that other nodes read.

    A mean needs only the number of keys. Its parameter ``heads`` keeps the head count of the
    scores if other operands have fewer heads.
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
    """Merge two top-k filters into the narrower filter, and a filter with softmax.

    Both filters keep all scores that tie at rank k.
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
    """Drop a top-k filter whose k is at least the number of keys."""
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
    """Drop a ReLU of a result that is never negative."""
    node = genome.nodes[index]
    if node.op == "relu" and _sign(genome, node.inputs[0]).is_non_negative:
        yield from _without(genome, index, node.inputs[0])


@lru_cache(maxsize=16)
def _signs(nodes: tuple[Node, ...]) -> tuple[Sign, ...]:
    """The provable sign of each node's result, by the sign rules of the primitives."""
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
    """Simplify sums and products with zeros, such as the squared ReLU of negative distances.

    Scores whose weights are all zero become distances within one stream, their normal form.
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
    """Replace scores by distances within the first stream that type-checks.

    Scores are kept if another reader of them may be non-zero.
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
    """Rewrite A·v + B·v as (A + B)·v, and R q + R k as R (q + k): one call fewer."""
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
    place = max(first, second)  # both operands are computed before it
    added = Node(node.op, (left.inputs[slots[0]], right.inputs[slots[0]]))
    if any(_has_kernel(genome, ref) for ref in added.inputs):
        return None
    return genome.with_node(place, added).with_node(index, left.reading(slots[0], place))


def _double_operand(genome: Genome, index: int) -> Genome | None:
    """Rewrite f(v) + f(v) as f(v + v); an aggregation doubles its values, not its weights."""
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
    """Whether a kernel sums values with these weights without storing the weights."""
    if isinstance(ref, str):
        return False
    primitive = get(genome.nodes[ref].op)
    return primitive.weights(primitive.full(genome.nodes[ref].param_dict())) is not None


def _sole_operands(genome: Genome, index: int) -> tuple[int | None, int | None]:
    """The operands of a sum, each None if it is a stream or has another reader."""
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
    """Rewrite a mechanism with one head of model width as one with the default heads.

    If all operations are featurewise, one head of model width (``raw: shared``, or one head under
    ``merge: sum``) equals all heads side by side: projections have the same shapes and the same
    initial distribution.

    Args:
        sizes: the sizes at which head labels are evaluated; None if the result must hold at all.
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


# From a genome and the index of a live node to an equal genome, or None.
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
        tokens: the sequence length; None for a form that is valid at every length.
        is_causal: True if every call is causal (a window of w reaches w - 1 tokens back), False if
            none is (w // 2 to either side), None for a form that is valid in both cases.
    """
    window, apart = visibility.window, None if tokens is None else tokens - visibility.global_tokens
    if window is None or (apart is not None and _covers(window, apart, is_causal)):
        return Visibility()
    if window > 1 and (is_causal is False or (is_causal is None and apart and window > apart)):
        window -= window % 2
    return replace(visibility, window=window)


def _covers(window: int, apart: int, is_causal: bool | None) -> bool:
    """Whether a window lets all of ``apart`` tokens, none of them global, see each other."""
    behind, aside = window >= apart, window // 2 >= apart - 1
    return (behind or is_causal is False) and (aside or is_causal is True)


def plain_placement(placement: str, depth: int) -> str:
    """The first placement with the same layers."""
    layers = layers_with_mechanism(placement, depth)
    return next(name for name in PLACEMENTS if layers_with_mechanism(name, depth) == layers)
