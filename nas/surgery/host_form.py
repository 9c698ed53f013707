"""The form of a genome that runs on the queries, keys and values of an existing model's attention.

The normal form of a genome may call a stream ``q`` that is used as keys, or ``v`` if it is used as
queries. In the host form, each stream is named after its use. RoPE of the genome is removed from
queries and keys if the host rotates them, and remains on values and outputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nas.common.errors import GenomeError
from nas.compiler import Plan, make_plan
from nas.compiler.plan import plan_as_written
from nas.costs.memory import sources_of
from nas.genome import Genome, Ref
from nas.genome.primitives import Kind
from nas.genome.primitives.base import Port
from nas.genome.types import infer

CACHED: Final = {"k", "v"}  # streams of earlier tokens in a host's cache
_STREAM_OF_PORT: Final = {"query": "q", "key": "k", "values": "v"}


def host_form(genome: Genome, is_rotated: bool) -> Genome:
    """Return the form of a genome whose streams are named after their use as query, key or value.

    GenomeError is raised if a primitive or parameter does not exist, ViolationError if the genome
    does not type-check.
    """
    genome = make_plan(genome).genome
    if is_rotated:
        genome = make_plan(_without_rotation(genome)).genome
    genome = _with_keys(genome)
    nodes = []
    for node, signature in zip(genome.nodes, infer(genome).signatures, strict=True):
        pairs = zip(node.inputs, signature.inputs, strict=True)
        inputs = tuple(_stream_at(genome, ref, port) for ref, port in pairs)
        nodes.append(replace(node, inputs=inputs))
    return replace(genome, nodes=tuple(nodes))


def stream_sides(plan: Plan) -> tuple[set[Ref], set[Ref]]:
    """Return which of ``q``, ``k`` and ``v`` are used as queries, and which as keys or values."""
    sources: dict[Ref, set[Ref]] = {stream.name: {stream.name} for stream in plan.streams}
    as_queries: set[Ref] = set()
    as_keys: set[Ref] = set()
    for step in plan.steps:
        step_sources: set[Ref] = set()
        for operand in step.operands:
            side = as_keys if operand.port.is_past else step_sources
            side |= sources[operand.ref]
        if step.is_paired:
            as_queries |= step_sources
            step_sources = set()
        sources[step.index] = step_sources
    return as_queries | sources[plan.steps[-1].index], as_keys


def check_decodable(plan: Plan) -> None:
    """Raise GenomeError unless a model can decode with a mechanism from its key-value cache."""
    whole = {s.primitive.name for s in plan.steps if s.primitive.needs_all_tokens}
    if names := sorted({*plan.unsafe, *whole}):
        reason = f"{', '.join(names)} reads neighbouring or later tokens"
    elif others := sources_of(plan, frozenset(range(len(plan.steps)))) - CACHED:
        names = sorted(o if isinstance(o, str) else plan.steps[o].module for o in others)
        reason = f"the mechanism's keys or values follow from {', '.join(names)}"
    else:
        return
    raise GenomeError(
        f"it generates from cached keys and values of single tokens, and {reason}; expected a "
        "mechanism that reads nothing else."
    )


def _without_rotation(genome: Genome) -> Genome:
    """Return the genome without RoPE of queries, keys, and tokens computed only from these."""
    is_rotated: dict[Ref, bool] = {"q": True, "k": True, "v": False}
    nodes = list(genome.nodes)
    for index, signature in enumerate(infer(genome).signatures):
        inputs: list[Ref] = []
        for ref, port in zip(nodes[index].inputs, signature.inputs, strict=True):
            source = ref
            while isinstance(source, int) and nodes[source].op == "rope":
                source = nodes[source].inputs[0]
            # A stream without projection may be called v; it is rotated if read as query or key.
            is_done = is_rotated[source] or _stream_at(genome, source, port) in ("q", "k")
            inputs.append(source if is_done else ref)
        nodes[index] = replace(nodes[index], inputs=tuple(inputs))
        reads_tokens = {port.kind for port in signature.inputs} == {Kind.TOKENS}
        is_rotated[index] = reads_tokens and all(is_rotated[ref] for ref in inputs)
    return replace(genome, nodes=tuple(nodes)).pruned()


def _with_keys(genome: Genome) -> Genome:
    """Exchange the names ``q`` and ``k`` if the genome reads keys from ``q`` and never from ``k``.

    The genome is returned unchanged if the exchange would change the number of heads of a stream.
    """
    projections, used = genome.projections, {ref for node in genome.nodes for ref in node.inputs}
    _, as_keys = stream_sides(plan_as_written(genome))
    is_alone = "k" not in used and not (projections.has_wv and "v" in used)
    has_equal_heads = is_alone or projections.q_heads == projections.kv_heads
    if "q" not in as_keys or "k" in as_keys or not has_equal_heads:
        return genome
    nodes = tuple(node.renamed({"q": "k", "k": "q"}) for node in genome.nodes)
    projections = replace(projections, has_wq=projections.has_wk, has_wk=projections.has_wq)
    if "k" not in used:
        projections = replace(projections, q_heads="all", kv_heads=projections.q_heads)
    return replace(genome, nodes=nodes, projections=projections)


def _stream_at(genome: Genome, ref: Ref, port: Port) -> Ref:
    """Return a stream under the name of its use, if no projection belongs to either name."""
    stream, projections = _STREAM_OF_PORT.get(port.name), genome.projections
    if stream is None or not isinstance(ref, str):
        return ref
    is_unprojected = not projections.has_projection(ref) and not projections.has_projection(stream)
    return stream if is_unprojected else ref
