"""Amounts of work to decode one token, by kind.

At batch 1 a step executes few multiply-adds: calls and reads of the cache dominate. Every call
counts once under its primitive (``softmax.call``). Elements that it reads, of the cache and of
parameters, count in millions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from nas.compiler import Plan
from nas.compiler.plan import Step
from nas.costs.decoding.memory import Memory, is_past, memory_of, shares_heads
from nas.costs.macs import numbers
from nas.costs.timing.features import MILLION
from nas.genome import ModelSizes, Ref

if TYPE_CHECKING:
    from nas.costs.timing.features import Amount


def decoding_amounts(plan: Plan, sizes: ModelSizes) -> dict[str, float]:
    """The work of one attention layer to decode one token after ``sizes.tokens``, by kind."""
    memory = memory_of(plan, sizes)
    totals = defaultdict(float, layer=1.0, window=float(plan.is_windowed))
    for kind, amount in _work(memory, sizes):
        totals[kind] += amount if kind.endswith(".call") else amount / MILLION
    return dict(totals)


def _work(memory: Memory, sizes: ModelSizes) -> Iterator[Amount]:
    plan, held = memory.plan, memory.held(sizes.tokens)
    for stream in plan.streams:
        yield "stream.call", 1.0
        if stream.is_projected:
            yield "project.macs", sizes.dim * numbers(stream.type, sizes)
    if plan.genome.projections.has_wo:
        yield "project.call", 1.0
        yield "project.macs", sizes.dim * plan.merged_width(sizes.dim, sizes.heads)
    yield "row.call", len(set(memory.names.values()))
    if plan.is_windowed:
        yield "copied", held * memory.row(sizes)
    for index in sorted(memory.sums):
        yield "sums.call", 1.0
        yield "sums", memory.sums[index].sum_numbers(plan.steps[index])
        yield "features.call", len(memory.sums[index].call.scores)
    recomputed: set[Ref] = set()
    for index in sorted(memory.called):
        yield from _call(plan, plan.steps[index], sizes, held)
        if index in memory.inputs:
            yield "inputs.call", 1.0
        recomputed |= {o.ref for o in plan.steps[index].operands if is_past(o)}
    for step in reversed(plan.steps):  # keys and values recomputed from cached rows
        if step.index in recomputed - memory.rows:
            size = plan.call_sizes(step, sizes.dim, sizes.heads, held)
            yield f"{step.primitive.name}.call", 1.0
            yield f"{step.primitive.name}.tokens", held * size.heads * size.width
            yield f"{step.primitive.name}.macs", step.primitive.macs(size, step.params)
            recomputed |= {operand.ref for operand in step.operands}
    for stream in plan.streams:
        if stream.name in recomputed and not stream.is_projected:
            yield "raw", held * sizes.dim


def _call(plan: Plan, step: Step, sizes: ModelSizes, held: int) -> Iterator[Amount]:
    """The work of one call: one row, for paired steps against all cached tokens."""
    name, keys = step.primitive.name, held if step.is_paired else 1
    size = replace(plan.call_sizes(step, sizes.dim, sizes.heads, keys), rows=1)
    yield f"{name}.call", 1.0
    yield f"{name}.macs", step.primitive.macs(size, step.params)
    if step.is_paired:
        passes = size.pairs * size.heads * step.primitive.passes(size, step.params)
        yield f"{name}.pairs", passes
        for parameter, value in sorted(step.params.items()):
            if isinstance(value, str | bool):
                yield f"{name}.{parameter}={value}", passes
    for operand in step.operands:
        if operand.is_repeated and not shares_heads(step):
            yield "repeat.call", 1.0
            if is_past(operand) or operand.is_paired:
                yield "repeat", keys * size.heads * (1 if operand.is_paired else size.width)
