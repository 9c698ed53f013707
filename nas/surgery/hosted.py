"""A genome as a host runs it: which of its streams are rotated and kept, and what cannot be.

A host turns queries and keys by position where it rotates, and keeps keys and values of earlier
tokens, nothing else. The normal form may call keys ``q``, or a raw key ``v``; here every stream has
the name of what it is read as. A genome's own RoPE is left out on what the host has turned; values
and outputs are turned by the genome alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nas.common.errors import GenomeError
from nas.compiler import Plan, make_plan
from nas.compiler.plan import plan_as_written
from nas.costs.decoding.memory import sources_of
from nas.genome import Genome, Ref
from nas.genome.canonical import canonicalise
from nas.genome.primitives import Kind, check_vocabulary
from nas.genome.primitives.base import Port
from nas.genome.types import infer

PAST: Final = ("k", "v")  # the streams of which a host keeps earlier tokens
_STREAM_OF: Final = {"query": "q", "key": "k", "values": "v"}
_ROTATION: Final = "rope"


def hosted(genome: Genome, is_rotated: bool) -> Genome:
    """The normal form, with raw streams under the names of what reads them.

    Raises:
        GenomeError: a primitive or parameter does not exist.
        ViolationError: the genome does not type-check.
    """
    found = make_plan(genome).genome
    if is_rotated:
        found = canonicalise(check_vocabulary(_without_rotation(found)))
    found = _with_keys(found)
    signatures = infer(found).signatures
    nodes = list(found.nodes)
    for index, node in enumerate(nodes):
        names = (port.name for port in signatures[index].inputs)
        pairs = zip(node.inputs, names, strict=True)
        nodes[index] = replace(node, inputs=tuple(_named(found, *pair) for pair in pairs))
    return replace(found, nodes=tuple(nodes))


def is_past(port: Port) -> bool:
    """Whether what it takes is read at every token that a query may see."""
    return port.name in ("key", "values")


def sides(plan: Plan) -> tuple[set[Ref], set[Ref]]:
    """The streams that are read at new tokens alone, and those read at all tokens."""
    sources: dict[Ref, set[Ref]] = {stream.name: {stream.name} for stream in plan.streams}
    now: set[Ref] = set()
    past: set[Ref] = set()
    for step in plan.steps:
        own: set[Ref] = set()
        for operand in step.operands:
            if is_past(operand.port):
                past |= sources[operand.ref]
            else:
                own |= sources[operand.ref]
        if step.is_paired:
            now |= own
            own = set()  # its pairs have their places already
        sources[step.index] = own
    return now | sources[plan.steps[-1].index], past


def check_decodable(plan: Plan, is_sliding: bool) -> None:
    """Refuse what no cache of single tokens' keys and values continues.

    Raises:
        GenomeError: a step reads neighbours or later tokens, keys and values follow from more than
            their own, or a cache that forgets the oldest tokens meets global ones, or a RoPE that
            counts from them.
    """
    if is_sliding and plan.is_windowed and plan.genome.visibility.global_tokens:
        raise GenomeError(
            "its own window's cache forgets global tokens; expected a mechanism without."
        )
    if is_sliding and any(step.primitive.name == _ROTATION for step in plan.steps):
        raise GenomeError(
            "its own window's cache forgets the first token, from which the mechanism's RoPE "
            "counts; expected a mechanism without, or with RoPE on queries and keys alone."
        )
    whole = {s.primitive.name for s in plan.steps if s.primitive.needs_all_tokens}
    if reasons := sorted({*plan.unsafe, *whole}):
        reason = f"{', '.join(reasons)} reads neighbouring or later ones"
    elif others := sources_of(plan, frozenset(range(len(plan.steps)))) - set(PAST):
        names = (o if isinstance(o, str) else plan.steps[o].module for o in others)
        reason = f"the mechanism's follow from {', '.join(sorted(map(str, names)))}"
    else:
        return
    raise GenomeError(
        f"it generates from the keys and values of single tokens alone, and {reason}; expected a "
        "mechanism that needs no more."
    )


def _without_rotation(genome: Genome) -> Genome:
    """The genome without RoPE on what the host has turned: queries, keys, what follows of them."""
    is_turned: dict[Ref, bool] = {"q": True, "k": True, "v": False}
    nodes = list(genome.nodes)
    for index, signature in enumerate(infer(genome).signatures):
        ports, inputs = signature.inputs, []
        for ref, port in zip(nodes[index].inputs, ports, strict=True):
            below = ref
            while isinstance(below, int) and nodes[below].op == _ROTATION:
                below = nodes[below].inputs[0]
            # A raw stream is called v, and turned where it is read as a query or as a key.
            is_done = is_turned[below] or _named(genome, below, port.name) in ("q", "k")
            inputs.append(below if is_done else ref)
        nodes[index] = replace(nodes[index], inputs=tuple(inputs))
        kinds = {port.kind for port in ports}
        is_turned[index] = kinds == {Kind.TOKENS} and all(is_turned[ref] for ref in inputs)
    return replace(genome, nodes=tuple(nodes)).pruned()


def _with_keys(genome: Genome) -> Genome:
    """The genome with ``q`` and ``k`` renamed, where only ``q`` is read as keys and may be one."""
    old, used = genome.projections, {ref for node in genome.nodes for ref in node.inputs}
    _, past = sides(plan_as_written(genome))
    is_alone = "k" not in used and not (old.has_wv and "v" in used)
    is_alike = is_alone or old.q_heads == old.kv_heads
    if "q" not in past or "k" in past or not is_alike:
        return genome
    nodes = tuple(node.renamed({"q": "k", "k": "q"}) for node in genome.nodes)
    flags = replace(old, has_wq=old.has_wk, has_wk=old.has_wq)
    if "k" not in used:
        flags = replace(flags, q_heads="all", kv_heads=old.q_heads)
    return replace(genome, nodes=nodes, projections=flags)


def _named(genome: Genome, ref: Ref, port: str) -> Ref:
    """A raw stream's name at this port; others keep theirs."""
    wanted, projections = _STREAM_OF.get(port), genome.projections
    if wanted is None or not isinstance(ref, str):
        return ref
    is_raw = not projections.has_projection(ref) and not projections.has_projection(wanted)
    return wanted if is_raw else ref
