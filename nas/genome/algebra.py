"""Algebraic rewriting: rules that turn a genome into a simpler one that computes the same function.

Every rule preserves values, gradients of the remaining parameters and the initial distribution of
parameters, exactly in real arithmetic. A rule proposes genomes whose nodes keep their indices. A
proposal is accepted if the remaining nodes keep their types, because a removed operand may have
determined the width of a projection. Rewriting terminates: each rule reduces live nodes,
parameters, unread operands, or the number of nodes below a doubling.

These equal functions are not rewritten:

- A norm of a norm: both have learned gains, and the second norm cancels only the scale of the
  first.
- Two temperatures, or a linear map on either side of an aggregation: the functions are equal, but
  gradients and initial distributions differ.
- RoPE after RoPE: no primitive rotates by twice the angle.
- ``(A + B)·v`` and ``A·v + B·v`` if A or B has a fused kernel: the second form is cheaper and has
  one node more.
- ``(A + A)·v`` and ``A·(v + v)``: recorded runs contain both forms.
- The order of a sum or product of more than two operands, and doubled results with further
  readers: a unique normal form would need more nodes than the genome has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, Final

from nas.genome import PLACEMENTS, Genome, ModelSizes, Node, Ref, Visibility, layers_with_mechanism
from nas.genome.primitives import get
from nas.genome.primitives.base import Kind, Primitive
from nas.genome.primitives.factors import Sign, Weights
from nas.genome.types import MODEL, Typing, head_fraction, infer


@dataclass(frozen=True, slots=True)
class Site:
    """A live node of a genome that type-checks, to which rules are applied.

    Attributes:
        sizes: sizes at which the rewritten genome must be equal; None for all sizes.
    """

    genome: Genome
    index: int
    typing: Typing
    sizes: ModelSizes | None

    @property
    def node(self) -> Node:
        """The node itself."""
        return self.genome.nodes[self.index]

    @property
    def primitive(self) -> Primitive:
        """The primitive of the node."""
        return get(self.node.op)

    def replaced(self, node: Node) -> Genome:
        """Return the genome with ``node`` in place of this node."""
        return self.genome.with_node(self.index, node)

    def removed(self, ref: Ref) -> Iterator[Genome]:
        """Yield the genome whose readers of this node read ``ref``, unless the output is lost."""
        if self.index < len(self.genome.nodes) - 1:
            yield self.genome.bypassing(self.index, ref)
        elif isinstance(ref, int):
            yield replace(self.genome, nodes=self.genome.nodes[: ref + 1])


def rewrite(genome: Genome, sizes: ModelSizes | None = None) -> Genome:
    """Apply the rules until none changes the genome; an ill-typed genome is returned unchanged.

    Args:
        sizes: also apply rules that hold only at these sizes.
    """
    typing = infer(genome)
    if typing.problems:
        return genome
    while accepted := _first_accepted(genome, typing, sizes):
        genome, typing = accepted
    return genome


def _first_accepted(
    genome: Genome, typing: Typing, sizes: ModelSizes | None
) -> tuple[Genome, Typing] | None:
    for (rule, is_accepted), index in product(RULES, genome.live()):
        for proposal in rule(Site(genome, index, typing, sizes)):
            new_typing = infer(proposal)
            if is_accepted(proposal, new_typing, typing):
                return proposal, new_typing
    return None


def _keeps_types(genome: Genome, new_typing: Typing, old_typing: Typing) -> bool:
    """Whether live nodes keep their types; parameter-free scores and weights may lose heads."""
    live = genome.live()
    if any(problem.node is None or problem.node in live for problem in new_typing.problems):
        return False
    for index in live:
        new, old = new_typing.of(index), old_typing.of(index)
        if new == old and new_typing.widths[index] == old_typing.widths[index]:
            continue
        is_parametric = get(genome.nodes[index].op).is_parametric
        if is_parametric or Kind.TOKENS in (new.kind, old.kind) or new.kind is not old.kind:
            return False
    streams = _streams(genome)
    return all(new_typing.streams[name] == old_typing.streams[name] for name in streams)


def _keeps_output(genome: Genome, new_typing: Typing, old_typing: Typing) -> bool:
    return not new_typing.problems and new_typing.nodes[-1] == old_typing.nodes[-1]


def _use_stream_in_mean(site: Site) -> Iterator[Genome]:
    """Replace the operand of a uniform node, of which only the length matters, by a stream.

    The stream must have another reader. The parameter ``heads`` keeps the head count of the
    replaced scores if all further operands have fewer heads.
    """
    if site.node.op != "uniform":
        return
    heads = site.typing.of(site.index).heads
    for label, stream in product(dict.fromkeys(("one", heads)), ("v", "k", "q")):
        params = () if label == "one" else (("heads", label),)
        proposal = site.replaced(Node("uniform", (stream,), params))
        nodes = [proposal.nodes[index] for index in proposal.live()]
        if any(stream in node.inputs for node in nodes if node.op != "uniform"):
            if proposal == site.genome:
                return
            yield proposal


def _replace_unread(site: Site) -> Iterator[Genome]:
    """Replace an operand whose values have no effect by another operand of the same shape."""
    node, ports = site.node, site.typing.signatures[site.index].inputs
    unread = site.primitive.unread(_params(node))
    read = [ref for ref, port in zip(node.inputs, ports, strict=True) if port.name not in unread]
    if not read or site.typing.of(read[0]).heads != site.typing.of(site.index).heads:
        return
    for slot, port in enumerate(ports):
        if port.name in unread and node.inputs[slot] != read[0]:
            yield site.replaced(node.reading(slot, read[0]))


def _merge_filters(site: Site) -> Iterator[Genome]:
    """Merge two top-k filters into the one with the smaller k, and a filter with softmax.

    Both filters keep all scores that are equal to the k-th largest.
    """
    node = site.node
    below = node.inputs[0] if node.op in ("softmax", "topk_softmax", "topk_filter") else "q"
    filtered = None if isinstance(below, str) else site.genome.nodes[below]
    if filtered is not None and filtered.op == "topk_filter":
        op = "topk_softmax" if node.op == "softmax" else node.op
        count = min(_params(each)["k"] for each in (filtered, node) if each.op != "softmax")
        params = () if count == get(op).parameters["k"].default else (("k", count),)
        yield site.replaced(Node(op, filtered.inputs, params))


def _drop_wide_filters(site: Site) -> Iterator[Genome]:
    """Drop a top-k filter whose k is at least the number of keys."""
    node = site.node
    if node.op in ("topk_filter", "topk_softmax") and site.sizes is not None:
        if _params(node)["k"] < site.sizes.tokens:
            return
        if node.op == "topk_softmax":
            yield site.replaced(Node("softmax", node.inputs))
        else:
            yield from site.removed(node.inputs[0])


def _drop_relu(site: Site) -> Iterator[Genome]:
    """Drop a ReLU of a result that is never negative."""
    if site.node.op == "relu" and _sign(site.genome, site.node.inputs[0]).is_non_negative:
        yield from site.removed(site.node.inputs[0])


def _fold_zeros(site: Site) -> Iterator[Genome]:
    """Simplify sums and products with zeros, such as the squared ReLU of negative distances."""
    node, output = site.node, site.typing.of(site.index)
    kinds = [port.kind for port in site.typing.signatures[site.index].inputs]
    is_normaliser = kinds == [Kind.SCORES] and output.kind is Kind.WEIGHTS
    if is_normaliser and _sign(site.genome, site.index).is_zero:
        yield from _replace_scores_of_zeros(site)
    elif node.op == "add" and output.kind is not Kind.SCORES:
        for zero, other in (node.inputs, node.inputs[::-1]):
            if _sign(site.genome, zero).is_zero and site.typing.of(other) == output:
                yield from site.removed(other)
    elif node.op == "multiply":
        for ref in node.inputs:
            if _sign(site.genome, ref).is_zero and site.typing.of(ref) == output:
                yield from site.removed(ref)


def _replace_scores_of_zeros(site: Site) -> Iterator[Genome]:
    """Replace scores whose weights are zero by distances within one stream, their normal form.

    Scores are kept if the result of another reader may be non-zero.
    """
    below = site.node.inputs[0]
    assert isinstance(below, int), "scores are never streams"
    for stream in ("v", "k", "q"):
        distances = Node("distance", (stream, stream))
        if site.genome.nodes[below] == distances:
            return
        proposal = site.genome.with_node(below, distances)
        is_zero = all(_sign(proposal, index).is_zero for index in _readers(site.genome, below))
        if is_zero and set(_readers(proposal, stream)) - {below}:
            yield proposal


def _factor_sum(site: Site) -> Iterator[Genome]:
    """Rewrite A·v + B·v as (A + B)·v, and R q + R k as R (q + k), with one call fewer."""
    first, second = _summands(site)
    if first == second:
        return
    left, right = site.genome.nodes[first], site.genome.nodes[second]
    primitive = get(left.op)
    pairs = list(zip(left.inputs, right.inputs, strict=False))
    slots = [slot for slot, (a, b) in enumerate(pairs) if a != b]
    if (left.op, left.params) != (right.op, right.params) or len(slots) != 1:
        return
    (slot,) = slots
    is_linear = primitive.signatures[0].inputs[slot].name in primitive.homogeneous
    if primitive.is_parametric or not (primitive.is_additive and is_linear):
        return
    if not any(_has_kernel(site.genome, ref) for ref in pairs[slot]):
        place = max(first, second)  # the operands of both precede it
        added = site.genome.with_node(place, Node(site.node.op, pairs[slot]))
        yield added.with_node(site.index, left.reading(slot, place))


def _double_operand(site: Site) -> Iterator[Genome]:
    """Rewrite f(v) + f(v) as f(v + v); for an aggregation v are the values, not the weights."""
    first, second = _summands(site)
    doubled = site.genome.nodes[first]
    primitive = get(doubled.op)
    if first == second and first >= 0 and primitive.homogeneous:
        names = [port.name for port in primitive.signatures[0].inputs]
        slot = names.index(primitive.homogeneous[-1])
        added = site.genome.with_node(first, Node("add", (doubled.inputs[slot],) * 2))
        yield added.with_node(site.index, doubled.reading(slot, first))


def _summands(site: Site) -> tuple[int, int]:
    """The operands of a sum of two nodes without further readers; (-1, -1) for any other node."""
    if site.node.op == "add":
        first, second = site.node.inputs
        if isinstance(first, int) and isinstance(second, int):
            readers = {*_readers(site.genome, first), *_readers(site.genome, second)}
            if readers == {site.index}:
                return first, second
    return -1, -1


# For each rule the test whether its proposals are accepted.
Rule = Callable[[Site], Iterator[Genome]]
Acceptance = Callable[[Genome, Typing, Typing], bool]
RULES: Final[tuple[tuple[Rule, Acceptance], ...]] = (
    (_use_stream_in_mean, _keeps_types),
    (_replace_unread, _keeps_types),
    (_merge_filters, _keeps_types),
    (_drop_wide_filters, _keeps_types),
    (_drop_relu, _keeps_types),
    (_fold_zeros, _keeps_types),
    (_factor_sum, _keeps_output),
    (_double_operand, _keeps_output),
)


def _params(node: Node) -> dict[str, Any]:
    return get(node.op).full(node.param_dict())


def _readers(genome: Genome, ref: Ref) -> list[int]:
    return [index for index in genome.live() if ref in genome.nodes[index].inputs]


def _streams(genome: Genome) -> set[str]:
    """The streams that live nodes read."""
    refs = (ref for index in genome.live() for ref in genome.nodes[index].inputs)
    return {ref for ref in refs if isinstance(ref, str)}


def _has_kernel(genome: Genome, ref: Ref) -> bool:
    """Whether a kernel sums values with these weights without storing the weights."""
    if isinstance(ref, str):
        return False
    node = genome.nodes[ref]
    return get(node.op).weights(_params(node)) is not None


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


def is_constant(genome: Genome) -> bool:
    """Return whether the output is provably the same for every input.

    The genome must type-check.
    """
    constant: list[bool] = []
    for node, sign in zip(genome.nodes, _signs(genome.nodes), strict=True):
        primitive = get(node.op)
        reads_constants = all(isinstance(ref, int) and constant[ref] for ref in node.inputs)
        reads_tokens = "x" in primitive.extras or not node.inputs
        is_mean = primitive.weights(_params(node)) is Weights.MEAN
        constant.append(sign.is_zero or is_mean or (reads_constants and not reads_tokens))
    return constant[-1]


def with_cut_heads(genome: Genome, sizes: ModelSizes | None = None) -> Genome:
    """Rewrite a mechanism with one head of model width as one with the default heads.

    If all operations are featurewise, one head of model width (``raw: shared``, or one head under
    ``merge: sum``) equals all heads side by side: projections have the same shapes and the same
    initial distribution. Any other genome is returned unchanged.

    Args:
        sizes: sizes at which head labels are evaluated; None if the result must hold at all sizes.
    """
    typing, live = infer(genome), genome.live()
    if typing.problems or not all(get(genome.nodes[i].op).is_featurewise for i in live):
        return genome
    for tensor in (*map(typing.of, live), *map(typing.of, _streams(genome))):
        fraction = head_fraction(tensor.heads)
        is_one_head = fraction == 0 or (sizes is not None and fraction * sizes.heads <= 1)
        if not is_one_head or tensor.width not in (None, MODEL):
            return genome
    cut = replace(genome.projections, q_heads="all", kv_heads="all", raw="slice", merge="concat")
    return replace(genome, projections=cut)


def plain_visibility(
    visibility: Visibility, tokens: int | None = None, is_causal: bool | None = None
) -> Visibility:
    """Return the normal form of a mask.

    Args:
        tokens: sequence length at which the masks must be equal; None for every length.
        is_causal: True if every call is causal (a window of w reaches w - 1 tokens back), False if
            no call is (w // 2 to either side), None if the masks must be equal in both cases.
    """
    window, apart = visibility.window, None if tokens is None else tokens - visibility.global_tokens
    if window is None or (apart is not None and _covers(window, apart, is_causal)):
        return Visibility()
    if window > 1 and (is_causal is False or (is_causal is None and apart and window > apart)):
        window -= window % 2
    return replace(visibility, window=window)


def _covers(window: int, apart: int, is_causal: bool | None) -> bool:
    """Whether a window lets all of the ``apart`` tokens that are not global see each other."""
    covers_past, covers_sides = window >= apart, window // 2 >= apart - 1
    return (covers_past or is_causal is False) and (covers_sides or is_causal is True)


def plain_placement(placement: str, depth: int) -> str:
    """Return the first placement that selects the same layers of a backbone with ``depth``."""
    layers = layers_with_mechanism(placement, depth)
    return next(name for name in PLACEMENTS if layers_with_mechanism(name, depth) == layers)
