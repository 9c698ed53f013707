"""The normal form of a genome, and digests that are equal for equal mechanisms.

- The rules of ``nas.genome.algebra`` are applied.
- Dead nodes and default parameters are removed. Fields without effect get their defaults.
- Streams that are the same tensor get one name. If exchanging the names of queries and keys keeps
  the mechanism, the naming that sorts first is used.
- Equal nodes without learned parameters are merged.
- A mechanism that equals the attention of the layers without it is placed in all layers.
- Operands of commutative operations are sorted, and then all nodes, whatever their numbers were.

All steps preserve the output, gradients and the distribution of initial parameters. Mechanisms
that are equal in a weaker sense have different digests.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from nas.genome import (
    ALL,
    STREAMS,
    Genome,
    ModelSizes,
    Node,
    Placement,
    Projections,
    Ref,
    Visibility,
)
from nas.genome.algebra import rewrite
from nas.genome.primitives import check_vocabulary, full_params, get
from nas.genome.types import MODEL, Type, head_fraction, infer

VERSION: Final = "nas-2"


def canonicalise(
    genome: Genome, sizes: ModelSizes | None = None, *, is_causal: bool | None = None
) -> Genome:
    """Return the normal form of a genome, by the steps in the module docstring.

    With ``sizes``, rules that hold only there apply: a window of all tokens is removed. All calls
    of the mechanism are causal (``is_causal``), or none are; with None, the form is valid in both
    cases. GenomeError is raised if a primitive, a parameter or its value does not exist.
    """
    genome = check_vocabulary(genome)
    visibility = plain_visibility(genome.visibility, sizes and sizes.tokens, is_causal)
    graph = _simplified(Genome(genome.nodes, genome.projections))
    form = replace(_normal(graph, sizes), visibility=visibility)
    placement = plain_placement(genome.placement, sizes, is_causal)
    hybrid = replace(form, placement=placement)
    if placement == ALL or canonicalise(hybrid.rest(), sizes, is_causal=is_causal) == form:
        return form
    return hybrid


@lru_cache(maxsize=1024)
def _normal(genome: Genome, sizes: ModelSizes | None) -> Genome:
    while (new := _with_cut_heads(rewrite(genome, sizes), sizes)) != genome:
        genome = _simplified(new)
    forms = []
    for form in _namings(genome, sizes):
        nodes = form.nodes if form is genome else _ordered(form.nodes)
        projections = _effective(form.projections, nodes)
        forms.append(replace(form, nodes=nodes, projections=projections))
    return min(forms, key=_naming_key)


def digest(genome: Genome) -> str:
    """Return the digest of a mechanism, 16 hexadecimal characters, the same at all model sizes."""
    return normal_digest(canonicalise(genome))


def normal_digest(form: Genome) -> str:
    """Return the digest of the mechanism with normal form ``form``."""
    return _hash(form.to_dict())


def resolved_digest(genome: Genome, sizes: ModelSizes) -> str:
    """Return the digest of a normal form at given model sizes, from the numbers of its labels.

    For example, "1/4" and "one" give one head in a backbone with four heads. A hybrid has the same
    digest if its mechanism and the attention of the other layers exchange their names. GenomeError
    is raised if a head label does not give a whole number of heads at these sizes.
    """
    every = list(range(sizes.depth))
    layers, parts = list(genome.placement.layers(sizes.depth)), _resolved_parts(genome, sizes)
    if layers == every:
        return _hash("resolved", *sizes, layers, parts)
    rest, standard = (
        _resolved_parts(canonicalise(each.rest()), sizes) for each in (genome, Genome(()))
    )
    if rest == parts:
        layers = every
    elif 0 not in layers:
        layers, parts, rest = [i for i in every if i not in layers], rest, parts
    others = [] if layers == every or rest == standard else [rest]
    return _hash("resolved", *sizes, layers, parts, *others)


def _resolved_parts(genome: Genome, sizes: ModelSizes) -> list[Any]:
    typing = infer(genome)
    streams = {
        name: [genome.projections.has_projection(name), *_numbers(typing.streams[name], sizes)]
        for name in sorted(_used(genome.nodes))
    }
    output = typing.nodes[-1] if typing.nodes else None
    merged = _numbers(output, sizes) if output and output.width else []
    merge = genome.projections.merge if merged and merged[0] > 1 else "concat"
    form = genome.to_dict()
    parts = [form["graph_def"], streams, merged, merge, genome.projections.has_wo]
    return [*parts, form["visibility"]] if "visibility" in form else parts


def _hash(*parts: Any) -> str:
    text = json.dumps([VERSION, *parts], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _numbers(tokens: Type, sizes: ModelSizes) -> list[int]:
    return [tokens.head_count(sizes.heads), tokens.channels(sizes.dim, sizes.heads)]


def _used(nodes: Sequence[Node]) -> set[str]:
    return {ref for node in nodes for ref in node.inputs if isinstance(ref, str)}


@lru_cache(maxsize=1024)
def _simplified(genome: Genome) -> Genome:
    used = _used([genome.nodes[index] for index in genome.live()])
    # An unread stream has no projection.
    flags: dict[str, Any] = {f"has_w{stream}": False for stream in STREAMS if stream not in used}
    projections = replace(genome.projections, **flags)
    # Streams without a projection are one tensor. v is preferred: policies require values from v.
    raw = [s for s in ("v", "k", "q") if not projections.has_projection(s)]
    names: dict[Ref, Ref] = {s: raw[0] if s in raw else s for s in STREAMS}
    indices: dict[Node, int] = {}
    nodes: list[Node] = []
    for index in genome.live():
        node = genome.nodes[index].renamed(names)
        primitive = get(node.op)
        inputs = node.inputs
        if primitive.commutes and len(inputs) == 2:
            inputs = tuple(sorted(inputs, key=str))
        defaults = primitive.defaults()
        omitted = primitive.unread(defaults | dict(node.params))
        params = ((k, v) for k, v in node.params if v != defaults[k] and k not in omitted)
        simplified = Node(node.op, inputs, tuple(params))
        if primitive.is_parametric or simplified not in indices:
            indices[simplified] = len(nodes)
            nodes.append(simplified)
        names[index] = indices[simplified]
    # Rules are applied in this order, which does not depend on the genome's.
    return replace(genome, nodes=_ordered(nodes), projections=projections)


def _namings(genome: Genome, sizes: ModelSizes | None) -> list[Genome]:
    """Return equal genomes with other names of ``q`` and ``k``.

    The two streams may exchange their names and projections if they have the same head label. If
    the nodes read a projected ``k`` but no ``q``, the stream ``k`` is renamed to ``q``.
    """
    projections, used = genome.projections, _used(genome.nodes)
    if "k" in used and "q" not in used and projections.has_wk:
        flags = replace(projections, has_wq=True, has_wk=False, q_heads=projections.kv_heads)
        return [_with_names(genome, {"k": "q"}, flags)]
    heads = _effective(projections, genome.nodes)
    has_both = projections.has_wq and projections.has_wk
    # A head label may move only if both streams are projected, or if it is the default "all".
    may_exchange = heads.q_heads == heads.kv_heads and (has_both or heads.q_heads == "all")
    if not {"q", "k"} <= used or not may_exchange:
        return [genome]
    flags = replace(heads, has_wq=projections.has_wk, has_wk=projections.has_wq)
    # A mean reads a stream that is chosen by name, so the rules are applied again.
    return [genome, rewrite(_with_names(genome, {"q": "k", "k": "q"}, flags), sizes)]


def _with_names(genome: Genome, names: dict[str, str], projections: Projections) -> Genome:
    nodes = tuple(node.renamed(names) for node in genome.nodes)
    return replace(genome, nodes=nodes, projections=projections)


def _naming_key(genome: Genome) -> tuple[Any, ...]:
    order = {"q": "a", "k": "b", "v": "c"}
    nodes = [
        (n.op, [order[r] if isinstance(r, str) else f"{r:04}" for r in n.inputs], str(n.params))
        for n in genome.nodes
    ]
    return nodes, not genome.projections.has_wq


def _effective(projections: Projections, nodes: tuple[Node, ...]) -> Projections:
    used = _used(nodes)
    projected = {stream for stream in used if projections.has_projection(stream)}
    has_effect = {
        "q_heads": "q" in projected,
        "kv_heads": bool(projected & {"k", "v"}),
        "qk_dim": bool(projected & {"q", "k"}),
        "raw": projected != used,
    }
    default = Projections()
    plain: dict[str, Any] = {k: getattr(default, k) for k, has in has_effect.items() if not has}
    result = replace(projections, **plain)
    if nodes and result.merge == "sum" and "v" not in projected:
        output = infer(Genome(nodes, result)).nodes[-1]
        if output is not None and output.heads == "one":
            return replace(result, merge=default.merge)
    return result


def _with_cut_heads(genome: Genome, sizes: ModelSizes | None = None) -> Genome:
    """Cut a head of model width into the heads of the backbone, if the mechanism stays the same.

    It does if all operations treat each feature alone. Any other genome is returned unchanged.
    """
    typing, live = infer(genome), genome.live()
    nodes = [genome.nodes[index] for index in live]
    if typing.problems or not all(get(n.op).is_featurewise(full_params(n)) for n in nodes):
        return genome
    for tensor in (*map(typing.of, live), *map(typing.of, genome.streams())):
        fraction = head_fraction(tensor.heads)
        is_one_head = fraction == 0 or (sizes is not None and fraction * sizes.heads <= 1)
        if not is_one_head or tensor.width not in (None, MODEL):
            return genome
    cut = replace(genome.projections, q_heads="all", kv_heads="all", raw="slice", merge="concat")
    return replace(genome, projections=cut)


def plain_visibility(
    visibility: Visibility, tokens: int | None = None, is_causal: bool | None = None
) -> Visibility:
    """Return the normal form of a mask, which is the same for equal masks.

    Masks are compared for sequences of ``tokens`` (None: of all lengths), in causal calls, other
    calls, or both, as ``is_causal`` is True, False or None.
    """
    window = visibility.window
    local = math.inf if tokens is None else tokens - visibility.global_tokens
    if window is None or (window >= local if is_causal else window // 2 >= local - 1):
        return Visibility()
    if window > 1 and (is_causal is False or (is_causal is None and window > local)):
        window -= window % 2
    return replace(visibility, window=window)


def plain_placement(
    placement: Placement, sizes: ModelSizes | None = None, is_causal: bool | None = None
) -> Placement:
    """Return the normal form for equal layers and rest; raise GenomeError if no layer is left."""
    placement = placement.simplified(sizes and sizes.depth)
    mask = plain_visibility(placement.rest.visibility, sizes and sizes.tokens, is_causal)
    rest = replace(placement.rest, window=mask.window, global_tokens=mask.global_tokens)
    return replace(placement, rest=rest)


def _ordered(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes in depth-first order from the last one, with operands before readers.

    Operands that commute are sorted by colour refinement: the colour of a node is a hash of its
    operation and of the colours of its operands and readers. Of nodes that still have the same
    colour, which are nearly always symmetric, one gets another colour.
    """
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
        colours.append(_colour(node.op, node.params, _operands(node, colours)))
    colours[-1] = _colour("output", colours[-1])
    colours = _refined(nodes, colours)
    while len({*colours}) < len(colours):
        tied = min(colour for colour in colours if colours.count(colour) > 1)
        colours[colours.index(tied)] = _colour("first", tied)
        colours = _refined(nodes, colours)
    return colours


def _refined(nodes: Sequence[Node], colours: list[str]) -> list[str]:
    """Return colours that also depend on those of operands and readers, until none is new."""
    readers: list[list[str]] = [[] for _ in nodes]
    for node, colour in zip(nodes, colours, strict=True):
        for slot, ref in enumerate(node.inputs):
            if isinstance(ref, int):
                readers[ref].append(_colour(colour, 0 if get(node.op).commutes else slot))
    refined = [
        _colour(colour, _operands(node, colours), sorted(read))
        for node, colour, read in zip(nodes, colours, readers, strict=True)
    ]
    return colours if len({*refined}) == len({*colours}) else _refined(nodes, refined)


def _operands(node: Node, colours: Sequence[str]) -> list[str]:
    operands = [ref if isinstance(ref, str) else colours[ref] for ref in node.inputs]
    return sorted(operands) if get(node.op).commutes else operands


def _colour(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
