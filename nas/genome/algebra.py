"""Rules that rewrite a genome into a simpler genome that computes the same function.

In exact arithmetic every rule preserves the output, the gradients of the remaining parameters, and
the distribution of their initial values. A rule proposes rewritten genomes, in which nodes keep
their indices. A proposal is accepted only if the remaining nodes keep their types. The types can
change, because a removed operand may have determined the width of a projection.

Rewriting terminates, because each rule reduces one of four numbers: live nodes, parameters,
operands without effect, or nodes on which a doubling (a sum ``x + x``) depends.

These equal functions keep different forms (A and B are weights, v are values):

- Two norms in sequence: each norm has a learned gain, and the second norm cancels only the scale
  of the first norm's result.
- Two temperatures or one temperature, and a linear map before or after an aggregation: gradients
  and initial distributions differ.
- RoPE after RoPE: no primitive rotates by twice the angle.
- ``l2_norm`` of tokens times a gate per head: a gate near zero makes tokens shorter than the limit
  at which ``l2_norm`` no longer gives unit length.
- RMS norm or layer norm of tokens of unit length: their sizes are bounded in different ways.
- ``(A + B)·v`` and ``A·v + B·v`` if A or B has a fused kernel: the second form is cheaper although
  it has one more node.
- ``(A + A)·v`` and ``A·(v + v)``: recorded runs contain both forms as different mechanisms.
- Sums or products of more than two operands in different orders, and doubled results that other
  nodes read: a unique normal form would need more nodes than the genome has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from nas.genome import Genome, ModelSizes, Node, Ref
from nas.genome.primitives import get
from nas.genome.primitives.base import Kind, Primitive, Signature, Sizes
from nas.genome.rescaling import first_rescaled, without_factor
from nas.genome.signs import sign_of
from nas.genome.types import Typing, head_fraction, infer, width_of


@dataclass(frozen=True, slots=True)
class Site:
    """A live node (one on which the output depends), with the data that a rule needs to rewrite it.

    Attributes:
        genome: genome that type-checks.
        index: index of the node in ``genome.nodes``.
        typing: types of ``genome``.
        sizes: model sizes at which the rewritten genome must compute the same function; None if
            it must do so at all sizes.
    """

    genome: Genome
    index: int
    typing: Typing
    sizes: ModelSizes | None

    @property
    def node(self) -> Node:
        """The node that the rule may rewrite."""
        return self.genome.nodes[self.index]

    @property
    def primitive(self) -> Primitive:
        """The primitive (operation) of the node that the rule may rewrite."""
        return get(self.node.op)

    def replaced(self, node: Node) -> Genome:
        """Return the genome with ``node`` in place of the node at this site."""
        return self.genome.with_node(self.index, node)

    def removed(self, ref: Ref) -> Iterator[Genome]:
        """Yield the genome in which all readers of the site's node read ``ref`` instead.

        If this node is the output, ``ref`` becomes the output. Nothing is yielded if ``ref`` is
        then a stream, because the output must be a node.
        """
        if self.index < len(self.genome.nodes) - 1:
            yield self.genome.bypassing(self.index, ref)
        elif isinstance(ref, int):
            yield replace(self.genome, nodes=self.genome.nodes[: ref + 1])


def rewrite(genome: Genome, sizes: ModelSizes | None = None) -> Genome:
    """Return the genome after applying this module's rules until none of them changes it.

    An ill-typed genome is returned unchanged.

    Args:
        sizes: model sizes. If given, rules that hold only at these sizes are applied too.
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
    """Return whether rewriting a genome keeps the types of its live nodes and read streams.

    Only the head count of scores and weights may change, at nodes without learned parameters.
    """
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
    streams = genome.streams()
    return all(new_typing.streams[name] == old_typing.streams[name] for name in streams)


def _keeps_output(genome: Genome, new_typing: Typing, old_typing: Typing) -> bool:
    return not new_typing.problems and new_typing.nodes[-1] == old_typing.nodes[-1]


def _use_stream_as_shape(site: Site) -> Iterator[Genome]:
    """Yield the genome in which a node of whose operand only the shape matters reads a stream.

    Examples are ``uniform``, which averages values, and forget gates. Another node must read the
    stream too. The parameter that is the least head count of the result is set where the head count
    would otherwise change.
    """
    if not _reads_shapes(site.node, site.typing.signatures[site.index]):
        return
    heads = site.typing.of(site.index).heads
    rest = tuple(pair for pair in site.node.params if pair[0] not in site.primitive.derived)
    for label, stream in product(dict.fromkeys(("one", heads)), ("v", "k", "q")):
        least = () if label == "one" else tuple((name, label) for name in site.primitive.derived)
        params = tuple(sorted((*rest, *least)))
        proposal = site.replaced(Node(site.node.op, (stream,), params))
        signatures = infer(proposal).signatures
        others = (i for i in proposal.live() if stream in proposal.nodes[i].inputs)
        if any(not _reads_shapes(proposal.nodes[i], signatures[i]) for i in others):
            if proposal == site.genome:
                return
            yield proposal


def _reads_shapes(node: Node, signature: Signature) -> bool:
    """Return whether only the shapes of a node's operands matter, and not their values."""
    unread = get(node.op).unread(_params(node))
    return all(port.name in unread for port in signature.inputs)


def _replace_unread(site: Site) -> Iterator[Genome]:
    """Replace an operand without effect by the node's first operand that has an effect.

    ``Primitive.unread`` names the operands without effect.
    """
    node, ports = site.node, site.typing.signatures[site.index].inputs
    unread = site.primitive.unread(_params(node))
    read = [ref for ref, port in zip(node.inputs, ports, strict=True) if port.name not in unread]
    if not read or site.typing.of(read[0]).heads != site.typing.of(site.index).heads:
        return
    for slot, port in enumerate(ports):
        if port.name in unread and node.inputs[slot] != read[0]:
            yield site.replaced(node.reading(slot, read[0]))


def _merge_filters(site: Site) -> Iterator[Genome]:
    """Merge a top-k filter with the filter, softmax or top-k softmax that reads it.

    The result has the smaller k of the two nodes. This is exact, because a filter keeps all
    scores that equal the k-th largest score.
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
    if site.node.op == "relu" and sign_of(site.genome, site.node.inputs[0]).is_non_negative:
        yield from site.removed(site.node.inputs[0])


def _fold_zeros(site: Site) -> Iterator[Genome]:
    """Simplify sums with a zero operand, products with a zero operand, and zero weights.

    Zero weights result, for example, from the squared ReLU of negative distances.
    """
    node, output = site.node, site.typing.of(site.index)
    kinds = [port.kind for port in site.typing.signatures[site.index].inputs]
    is_normaliser = kinds == [Kind.SCORES] and output.kind is Kind.WEIGHTS
    if is_normaliser and sign_of(site.genome, site.index).is_zero:
        yield from _replace_scores_of_zeros(site)
    elif node.op == "add" and output.kind is not Kind.SCORES:
        for zero, other in (node.inputs, node.inputs[::-1]):
            if sign_of(site.genome, zero).is_zero and site.typing.of(other) == output:
                yield from site.removed(other)
    elif node.op == "multiply":
        for ref in node.inputs:
            if sign_of(site.genome, ref).is_zero and site.typing.of(ref) == output:
                yield from site.removed(ref)


def _replace_scores_of_zeros(site: Site) -> Iterator[Genome]:
    """Yield the genome in which scores are ``distance`` of a stream to itself, as the normal form.

    The scores' readers, such as a normaliser whose weights are all zero, must give zeros then too.
    """
    below = site.node.inputs[0]
    assert isinstance(below, int), "scores are never streams"
    for stream in ("v", "k", "q"):
        distances = Node("distance", (stream, stream))
        if site.genome.nodes[below] == distances:
            return
        proposal = site.genome.with_node(below, distances)
        is_zero = all(sign_of(proposal, index).is_zero for index in _readers(site.genome, below))
        if is_zero and set(_readers(proposal, stream)) - {below}:
            yield proposal


def _factor_sum(site: Site) -> Iterator[Genome]:
    """Rewrite a sum of two results of one operation as the operation on a sum.

    Examples are A·v + B·v = (A + B)·v for weights A and B and values v, and
    R q + R k = R (q + k) for RoPE R.
    """
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
    """Rewrite f(v) + f(v) as f(v + v) if f is homogeneous in its operand v.

    For an aggregation, v stands for the values and not for the weights.
    """
    first, second = _summands(site)
    doubled = site.genome.nodes[first]
    primitive = get(doubled.op)
    if first == second and first >= 0 and primitive.homogeneous:
        names = [port.name for port in primitive.signatures[0].inputs]
        slot = names.index(primitive.homogeneous[-1])
        added = site.genome.with_node(first, Node("add", (doubled.inputs[slot],) * 2))
        yield added.with_node(site.index, doubled.reading(slot, first))


def _summands(site: Site) -> tuple[int, int]:
    """Return the indices of the two nodes that an ``add`` node sums, if no other node reads them.

    Otherwise, return (-1, -1).
    """
    if site.node.op == "add":
        first, second = site.node.inputs
        if isinstance(first, int) and isinstance(second, int):
            readers = {*_readers(site.genome, first), *_readers(site.genome, second)}
            if readers == {site.index}:
                return first, second
    return -1, -1


def _drop_factors(site: Site) -> Iterator[Genome]:
    """Drop a factor of tokens or scores on which a reader of them does not depend."""
    for slot, port in enumerate(site.typing.signatures[site.index].inputs):
        if port.name in site.primitive.scale_free:
            yield from without_factor(site.genome, site.index, slot)


def _rescale_first(site: Site) -> Iterator[Genome]:
    yield from first_rescaled(site.genome, site.index)


def _merge_with_operand(site: Site) -> Iterator[Genome]:
    """Merge a node with the node of the same primitive that it reads, as the primitive declares."""
    below = site.node.inputs[0]
    if isinstance(below, str) or site.genome.nodes[below].op != site.node.op:
        return
    first = site.genome.nodes[below]
    params = site.primitive.merged(_params(site.node), _params(first))
    if params is not None and first.inputs[1:] == site.node.inputs[1:]:
        yield site.replaced(Node(first.op, first.inputs, tuple(sorted(params.items()))))


def _drop_least_heads(site: Site) -> Iterator[Genome]:
    """Drop a smallest head count that the operands have anyway."""
    params = tuple((name, value) for name, value in site.node.params if name != "least_heads")
    if params != site.node.params:
        yield site.replaced(replace(site.node, params=params))


def _use_plain_params(site: Site) -> Iterator[Genome]:
    """Replace parameters by the equal parameters that the primitive declares as normal form."""
    params, label = _params(site.node), site.typing.widths[site.index]
    if site.sizes is None:
        return
    dim, all_heads, _, tokens = site.sizes
    heads = max(1, int(head_fraction(site.typing.of(site.index).heads) * all_heads))
    width = 0 if label is None else width_of(label, dim, all_heads)
    plain = site.primitive.plain(params, Sizes(dim, heads, width, tokens))
    if plain is None:
        yield from site.removed(site.node.inputs[0])
    elif plain != params:
        yield site.replaced(replace(site.node, params=tuple(sorted(plain.items()))))


# For each rule the test whether its proposals are accepted.
Rule = Callable[[Site], Iterator[Genome]]
Acceptance = Callable[[Genome, Typing, Typing], bool]
RULES: Final[tuple[tuple[Rule, Acceptance], ...]] = (
    (_use_stream_as_shape, _keeps_types),
    (_replace_unread, _keeps_types),
    (_merge_filters, _keeps_types),
    (_drop_wide_filters, _keeps_types),
    (_drop_relu, _keeps_types),
    (_fold_zeros, _keeps_types),
    (_factor_sum, _keeps_output),
    (_double_operand, _keeps_output),
    (_drop_factors, _keeps_types),
    (_rescale_first, _keeps_types),
    (_merge_with_operand, _keeps_types),
    (_drop_least_heads, _keeps_types),
    (_use_plain_params, _keeps_types),
)


def _params(node: Node) -> dict[str, Any]:
    return get(node.op).full(node.param_dict())


def _readers(genome: Genome, ref: Ref) -> list[int]:
    return [index for index in genome.live() if ref in genome.nodes[index].inputs]


def _has_kernel(genome: Genome, ref: Ref) -> bool:
    if isinstance(ref, str):
        return False
    node = genome.nodes[ref]
    return get(node.op).weights(_params(node)) is not None
