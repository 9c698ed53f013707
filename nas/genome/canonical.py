"""The normal form of a genome, and digests that equal mechanisms share.

Algebraic rules apply first (nas.genome.algebra). Then dead nodes, defaults and fields without
effect are dropped, streams that are the same tensor get one name, queries and keys with equal
projections are named in the order in which they are read, equal nodes without parameters are
merged, and commuting operands and nodes are sorted. All steps preserve values, gradients and the
initial distribution; mechanisms that are equal in a weaker sense have different digests.

Nodes are sorted by colour refinement over operations, operands and readers. If symmetric nodes
remain, each order is tried and the lexicographically smallest text is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from nas.genome import STREAMS, Genome, ModelSizes, Node, Projections, Ref, layers_with_mechanism
from nas.genome.algebra import plain_placement, plain_visibility, rewrite, with_cut_heads
from nas.genome.primitives import get
from nas.genome.types import Type, infer

VERSION: Final = "nas-2"
DIGEST_LENGTH: Final = 16
MAX_ORDERS: Final = 200  # orders of symmetric nodes that are tried


def canonicalise(
    genome: Genome, sizes: ModelSizes | None = None, *, is_causal: bool | None = None
) -> Genome:
    """The normal form; idempotent, and the same for genomes that are equal by the rules above.

    Args:
        sizes: also apply rules that hold at these sizes only (a window that covers all tokens).
        is_causal: True if every call is causal, False if none is, None for a form valid in both.
    """
    before = None
    while genome != before:
        before = genome
        genome = with_cut_heads(rewrite(_tidied(genome), sizes), sizes)
    visibility = plain_visibility(genome.visibility, sizes and sizes.tokens, is_causal)
    placement = plain_placement(genome.placement, sizes.depth) if sizes else genome.placement
    forms = [_in_order(form) for form in _namings(genome, sizes)]
    best = min(forms, key=_named) if len(forms) > 1 else forms[0]
    return replace(best, placement=placement, visibility=visibility)


def _tidied(genome: Genome) -> Genome:
    """The genome without dead nodes, with one name per distinct stream."""
    read = _used([genome.nodes[i] for i in genome.live()])
    # An unread stream has no projection.
    flags: dict[str, Any] = {f"has_w{s}": False for s in STREAMS if s not in read}
    projections = replace(genome.projections, **flags)
    nodes = _simplified(genome, _stream_names(projections))
    return replace(genome, nodes=tuple(nodes), projections=projections)


def _in_order(genome: Genome) -> Genome:
    nodes = _ordered(genome.nodes)
    return replace(genome, nodes=nodes, projections=_effective(genome.projections, nodes))


def _namings(genome: Genome, sizes: ModelSizes | None) -> list[Genome]:
    """The genome, and if it is equal the genome with queries and keys exchanged.

    Queries and keys with the same head label may exchange names, together with their projections.
    If only one of them is read, it is named the query.
    """
    projections, used = genome.projections, _used(genome.nodes)
    if "k" in used and "q" not in used and projections.has_wk:
        flags = replace(projections, has_wq=True, has_wk=False, q_heads=projections.kv_heads)
        return [replace(_renamed(genome, {"k": "q"}), projections=flags)]
    heads = _effective(projections, genome.nodes)
    is_both = projections.has_wq and projections.has_wk
    # A head label may move only if both sides have it, or if it is the default "all".
    is_alike = heads.q_heads == heads.kv_heads and (is_both or heads.q_heads == "all")
    if not {"q", "k"} <= used or not is_alike:
        return [genome]
    flags = replace(heads, has_wq=projections.has_wk, has_wk=projections.has_wq)
    swapped = replace(_renamed(genome, {"q": "k", "k": "q"}), projections=flags)
    # A mean reads a stream that is chosen by name, so the rules are applied again.
    return [genome, rewrite(swapped, sizes)]


def _renamed(genome: Genome, names: dict[str, str]) -> Genome:
    return replace(genome, nodes=tuple(node.renamed(names) for node in genome.nodes))


def _named(genome: Genome) -> tuple[Any, ...]:
    """The sort key of a naming: first by the nodes, then a projected query comes first."""
    order = {"q": "a", "k": "b", "v": "c"}
    nodes = [
        (n.op, [order[r] if isinstance(r, str) else f"{r:04}" for r in n.inputs], str(n.params))
        for n in genome.nodes
    ]
    return nodes, not genome.projections.has_wq


def digest(genome: Genome) -> str:
    """Digest of the mechanism at every size: 16 hexadecimal characters."""
    return normal_digest(canonicalise(genome))


def normal_digest(form: Genome) -> str:
    """The digest of a genome in normal form."""
    return _hash([VERSION, form.to_dict()])


def resolved_digest(genome: Genome, sizes: ModelSizes) -> str:
    """Digest of a normal form at given sizes, at which different labels may coincide.

    At four heads gqa and mqa are the same mechanism; with one layer "first" means "all".

    Args:
        genome: the normal form at these sizes.

    Raises:
        GenomeError: a label is not a whole number at this size.
    """
    dim, heads, depth, _ = sizes
    typing = infer(genome)
    streams = {
        name: [genome.projections.has_projection(name), *_sizes(typing.streams[name], dim, heads)]
        for name in sorted(_used(genome.nodes))
    }
    output = typing.nodes[-1] if typing.nodes else None
    merged = _sizes(output, dim, heads) if output and output.width else []
    merge = genome.projections.merge if merged and merged[0] > 1 else "concat"
    layers = layers_with_mechanism(genome.placement, depth)
    whole = genome.to_dict()
    parts = [whole["graph_def"], streams, merged, merge, genome.projections.has_wo]
    if "visibility" in whole:
        parts.append(whole["visibility"])
    return _hash([VERSION, "resolved", *sizes, list(layers), parts])


def _hash(parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def _sizes(tokens: Type, dim: int, heads: int) -> list[int]:
    return [tokens.head_count(heads), tokens.channels(dim, heads)]


def _stream_names(projections: Projections) -> dict[str, str]:
    """New names of the streams: those without a projection are one tensor and get one name.

    The name is the first of v, k, q among them, since policies require values from v.
    """
    raw = [s for s in ("v", "k", "q") if not projections.has_projection(s)]
    return {s: (raw[0] if s in raw else s) for s in STREAMS}


def _simplified(genome: Genome, names: dict[str, str]) -> list[Node]:
    """Live nodes without default parameters; equal nodes without weights are merged."""
    indices: dict[Node, int] = {}
    place: dict[int, Ref] = {}
    nodes: list[Node] = []
    for index in genome.live():
        node = genome.nodes[index]
        primitive = get(node.op)
        params = {k: primitive.parameters[k].accept(v) for k, v in node.params}
        inputs = tuple(names[r] if isinstance(r, str) else place[r] for r in node.inputs)
        if primitive.commutes and len(inputs) == 2:
            inputs = tuple(sorted(inputs, key=str))
        unread = primitive.unread(primitive.full(params))
        defaults = primitive.defaults()
        changed = ((k, v) for k, v in params.items() if v != defaults[k] and k not in unread)
        simplified = Node(node.op, inputs, tuple(sorted(changed)))
        if primitive.is_parametric or simplified not in indices:
            indices[simplified] = len(nodes)
            nodes.append(simplified)
        place[index] = indices[simplified]
    return nodes


def _used(nodes: Sequence[Node]) -> set[str]:
    return {ref for node in nodes for ref in node.inputs if isinstance(ref, str)}


def _effective(projections: Projections, nodes: tuple[Node, ...]) -> Projections:
    """The projections, with fields that have no effect on these nodes set to their defaults."""
    used = _used(nodes)
    projected = {s for s in used if projections.has_projection(s)}
    is_without_effect = {
        "q_heads": "q" not in projected,
        "kv_heads": not projected & {"k", "v"},
        "qk_dim": not projected & {"q", "k"},
        "raw": projected == used,
    }
    default = Projections()
    plain = {name: getattr(default, name) for name, is_so in is_without_effect.items() if is_so}
    result = replace(projections, **plain)
    if nodes and result.merge == "sum" and "v" not in projected:
        output = infer(Genome(nodes, result)).nodes[-1]
        if output is not None and output.heads == "one":
            return replace(result, merge=default.merge)
    return result


def _ordered(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes in the canonical order, inputs renumbered, commuting inputs sorted."""
    if not nodes:
        return ()
    orders = _discrete(nodes, _refine(nodes, _start(nodes)), [MAX_ORDERS])
    return min((_written(nodes, colours) for colours in orders), key=_text)


def _text(nodes: tuple[Node, ...]) -> list[tuple[str, list[str], list[str]]]:
    return [(n.op, [str(r) for r in n.inputs], [str(p) for p in n.params]) for n in nodes]


def _start(nodes: Sequence[Node]) -> list[str]:
    """Initial colours, from operation, parameters and colours of the operands."""
    colours: list[str] = []
    for node in nodes:
        inputs = [r if isinstance(r, str) else colours[r] for r in node.inputs]
        colours.append(_colour(node.op, node.params, _sorted(node, inputs)))
    colours[-1] = _colour("output", colours[-1])
    return colours


def _refine(nodes: Sequence[Node], colours: list[str]) -> list[str]:
    """Refine colours by readers and operands until no class of nodes splits."""
    count = len(set(colours))
    while True:
        readers: list[list[str]] = [[] for _ in nodes]
        for index, node in enumerate(nodes):
            for slot, ref in enumerate(node.inputs):
                if isinstance(ref, int):
                    at = 0 if get(node.op).commutes else slot
                    readers[ref].append(_colour(colours[index], at))
        fresh = []
        for index, node in enumerate(nodes):
            inputs = [r if isinstance(r, str) else colours[r] for r in node.inputs]
            fresh.append(_colour(colours[index], _sorted(node, inputs), sorted(readers[index])))
        if len(set(fresh)) == count:
            return colours
        colours, count = fresh, len(set(fresh))


def _discrete(nodes: Sequence[Node], colours: list[str], budget: list[int]) -> list[list[str]]:
    """Colourings with one node per colour, one for each order of symmetric nodes."""
    classes: dict[str, list[int]] = {}
    for index, colour in enumerate(colours):
        classes.setdefault(colour, []).append(index)
    tied = min((c for c in classes if len(classes[c]) > 1), default=None)
    if tied is None:
        return [colours]
    colourings: list[list[str]] = []
    for index in classes[tied]:
        if colourings and budget[0] <= 0:
            break
        budget[0] -= 1
        single = [_colour("first", c) if i == index else c for i, c in enumerate(colours)]
        colourings += _discrete(nodes, _refine(nodes, single), budget)
    return colourings


def _written(nodes: Sequence[Node], colours: Sequence[str]) -> tuple[Node, ...]:
    """Nodes in depth-first order from the output, operands first."""
    place: dict[int, int] = {}
    written: list[Node] = []
    stack: list[tuple[int, bool]] = [(len(nodes) - 1, False)]
    while stack:
        index, is_ready = stack.pop()
        if index in place:
            continue
        inputs = list(nodes[index].inputs)
        if get(nodes[index].op).commutes:
            inputs.sort(key=lambda r: r if isinstance(r, str) else colours[r])
        if is_ready:
            refs = tuple(r if isinstance(r, str) else place[r] for r in inputs)
            place[index] = len(written)
            written.append(replace(nodes[index], inputs=refs))
        else:
            stack.append((index, True))
            stack += [(r, False) for r in reversed(inputs) if isinstance(r, int)]
    return tuple(written)


def _sorted(node: Node, inputs: list[str]) -> list[str]:
    return sorted(inputs) if get(node.op).commutes else inputs


def _colour(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:DIGEST_LENGTH]
