"""Rules that rewrite a genome into a simpler genome that computes the same function.

In exact arithmetic every rule preserves the output, the gradients of the remaining parameters, and
the distribution of their initial values. The rules are those that find many duplicates among random
genomes (``python -m benchmarks duplicates``). Other equal functions, such as ``(A + B)·v`` and
``A·v + B·v`` for weights A and B, have different normal forms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product

from nas.genome import Genome, ModelSizes, Node
from nas.genome.primitives import full_params, get
from nas.genome.primitives.base import Kind, Signature, Sizes
from nas.genome.types import Typing, head_fraction, infer, width_of


def rewrite(genome: Genome, sizes: ModelSizes | None = None) -> Genome:
    """Return the genome after applying this module's rules until none of them changes it.

    An ill-typed genome is returned unchanged. ``sizes`` allow rules that hold only at these sizes.
    """
    if infer(genome).problems:
        return genome
    while (new := _rewritten_once(genome, sizes)) is not None:
        genome = new
    return genome


def _rewritten_once(genome: Genome, sizes: ModelSizes | None) -> Genome | None:
    typing = infer(genome)
    for index in genome.live():
        for proposal in chain(
            _reading_streams(genome, index, typing),
            _without_least_heads(genome, index),
            _with_plain_params(genome, index, typing, sizes),
            _with_maps_after_means(genome, index),
        ):
            if _keeps_types(proposal, genome):
                return proposal
    return None


def _keeps_types(new: Genome, old: Genome) -> bool:
    """Return whether rewriting a genome keeps the types of its live nodes and read streams.

    At nodes without learned parameters, the head count of scores and weights may change, and so may
    the type of an operation that a rule moves to another node: its reader is moved, too.
    """
    live, new_typing, old_typing = new.live(), infer(new), infer(old)
    if any(problem.node is None or problem.node in live for problem in new_typing.problems):
        return False
    for index in live:
        primitive = get(new.nodes[index].op)
        after, before = new_typing.of(index), old_typing.of(index)
        has_new_width = new_typing.widths[index] != old_typing.widths[index]
        if primitive.is_parametric:
            is_sized = not {"width", "head_width"}.isdisjoint(primitive.sizes)
            is_kept = after == before and not (has_new_width and is_sized)
        else:
            is_moved = primitive.name != old.nodes[index].op
            is_kept = is_moved or after == before or after.kind is before.kind is not Kind.TOKENS
        if not is_kept:
            return False
    return all(new_typing.streams[name] == old_typing.streams[name] for name in new.streams())


def _reading_streams(genome: Genome, index: int, typing: Typing) -> Iterator[Genome]:
    """Yield the genome in which a node of whose operand only the shape matters reads a stream.

    Examples are ``uniform`` and forget gates. The stream must have another reader. A least head
    count of the result is set where the head count would otherwise change.
    """
    node = genome.nodes[index]
    if not _reads_shapes(node, typing.signatures[index]):
        return
    derived = get(node.op).derived
    rest = tuple(pair for pair in node.params if pair[0] not in derived)
    for label, stream in product(dict.fromkeys(("one", typing.of(index).heads)), ("v", "k", "q")):
        least = () if label == "one" else tuple((name, label) for name in derived)
        proposal = genome.with_node(index, Node(node.op, (stream,), tuple(sorted((*rest, *least)))))
        signatures = infer(proposal).signatures
        others = (i for i in proposal.live() if stream in proposal.nodes[i].inputs)
        if any(not _reads_shapes(proposal.nodes[i], signatures[i]) for i in others):
            if proposal == genome:
                return
            yield proposal


def _reads_shapes(node: Node, signature: Signature) -> bool:
    unread = get(node.op).unread(full_params(node))
    return all(port.name in unread for port in signature.inputs)


def _without_least_heads(genome: Genome, index: int) -> Iterator[Genome]:
    node = genome.nodes[index]
    params = tuple(pair for pair in node.params if pair[0] != "least_heads")
    if params != node.params:
        yield genome.with_node(index, replace(node, params=params))


def _with_plain_params(
    genome: Genome, index: int, typing: Typing, sizes: ModelSizes | None
) -> Iterator[Genome]:
    if sizes is None:
        return
    node, label = genome.nodes[index], typing.widths[index]
    params, primitive = full_params(node), get(node.op)
    heads = max(1, int(head_fraction(typing.of(index).heads) * sizes.heads))
    width = 0 if label is None else width_of(label, sizes.dim, sizes.heads)
    plain = primitive.plain(params, Sizes(sizes.dim, heads, width, sizes.tokens))
    if plain is not None:
        if plain != params:
            yield genome.with_node(index, replace(node, params=tuple(sorted(plain.items()))))
    elif index < len(genome.nodes) - 1 or isinstance(node.inputs[0], int):
        yield genome.bypassing(index, node.inputs[0])


def _with_maps_after_means(genome: Genome, index: int) -> Iterator[Genome]:
    """Yield the genome in which an affine map of a mean's values maps the mean instead.

    The two are equal because the weights of a mean sum to 1, except for a query that sees no key.
    """
    node = genome.nodes[index]
    if node.op != "weighted_sum":
        return
    weights, values = node.inputs
    if isinstance(weights, str) or isinstance(values, str) or weights > values:
        return
    mapped = genome.nodes[values]
    readers = [i for i in genome.live() if values in genome.nodes[i].inputs]
    if genome.nodes[weights].op == "uniform" and mapped.op == "linear" and readers == [index]:
        mean = genome.with_node(values, node.reading(1, *mapped.inputs))
        yield mean.with_node(index, replace(mapped, inputs=(values,)))
