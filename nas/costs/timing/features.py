"""Amounts of work of a mechanism by kind, from its plan and sizes.

    {"project.macs": 2.1, "scaled_dot_product": 1.1, "softmax@call": 1.1, ...}

An amount is in million elements (or multiply-adds) of one batch; ``calibrate`` measures the time of
one unit. A paired step counts heads times pairs, a step of tokens heads times tokens times width.
Steps that a fused call replaces have a suffix (``softmax@call``), since other kernels run: a mean
needs no scores, linear attention no pairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from nas.compiler import Plan
from nas.compiler.lowering import Lowered, live, lower
from nas.compiler.plan import Step
from nas.costs.macs import computed_pairs, is_by_sums
from nas.genome import ModelSizes
from nas.genome.primitives import Role, Sizes

Amount = tuple[str, float]

MILLION: Final = 1e6


def amounts(plan: Plan, sizes: ModelSizes, batch: int, *, is_causal: bool) -> dict[str, float]:
    """The work of one attention layer, forward and backward, by kind."""
    # A window's mask is computed once per layer, for all sequences.
    totals = defaultdict(float, layer=1.0, window=float(plan.is_windowed))
    calls = lower(plan)
    read = live(plan, calls)
    member = {
        step.index: call
        for call in calls.values()
        for step in (*call.scores, call.normaliser, *call.sums)
    }
    for kind, amount in _projections(plan, sizes, read):
        totals[kind] += amount * batch / MILLION
    for step in plan.steps:
        call = member.get(step.index)
        if call is None and step.index not in read:
            continue
        size = plan.call_sizes(step, sizes.dim, sizes.heads, sizes.tokens)
        way = _way(plan, call, size, is_causal=is_causal)
        for kind, amount in _step(plan, step, size, way):
            totals[kind] += amount * batch / MILLION
        totals["step"] += 1.0
    return dict(totals)


def _projections(plan: Plan, sizes: ModelSizes, read: set[Any]) -> Iterator[Amount]:
    """The work of the streams, of merging heads, and of W_O."""
    dim, heads, _, tokens = sizes
    for stream in plan.streams:
        if stream.name not in read:
            continue
        width = stream.type.head_count(heads) * stream.type.channels(dim, heads)
        yield ("project" if stream.is_projected else "raw"), tokens * width
        if stream.is_projected:
            yield "project.macs", tokens * dim * width
    merged = plan.merged_width(dim, heads)
    yield "merge", tokens * plan.output.head_count(heads) * plan.output.channels(dim, heads)
    if plan.genome.projections.has_wo:
        yield "project", tokens * dim
        yield "project.macs", tokens * dim * merged


def _step(plan: Plan, step: Step, size: Sizes, way: str) -> Iterator[Amount]:
    """The work of one step, as a call or as a part of a fused call."""
    name = step.primitive.name
    tokens = size.heads * size.tokens * size.width
    pairs = size.heads * computed_pairs(plan, size.tokens)
    macs = step.primitive.macs(size, step.params)
    if way in ("@mean", "@window", "@linear"):
        if step.role in (Role.SCORE, Role.AGGREGATE):
            yield f"{step.role}{way}", tokens
            yield f"{step.role}{way}.macs", (pairs if way == "@window" else tokens) * size.width
    elif not step.is_paired:
        yield name, tokens
        yield f"{name}.macs", macs
    elif step.primitive.is_plain_product:
        yield f"{name}{way}", pairs
        yield f"product{way}.macs", pairs * size.width
    else:
        yield f"{name}{way}", pairs
        yield f"{name}.macs", macs
        # Work that depends on hidden units and on choices (an activation, a gate).
        passes = pairs * step.primitive.passes(size, step.params)
        if passes > pairs:
            yield f"{name}.passes", passes
        for parameter, value in sorted(step.params.items()):
            if isinstance(value, str | bool):
                yield f"{name}.{parameter}={value}", passes
    for operand in step.operands:
        if operand.is_repeated:
            kind = "pairs" if operand.is_paired else "tokens"
            yield f"repeat.{kind}{way}", pairs if operand.is_paired else tokens
    if plan.is_windowed and step.role is Role.NORMALIZE and way != "@window":
        yield f"mask{way}", pairs


def _way(plan: Plan, call: Lowered | None, size: Sizes, *, is_causal: bool) -> str:
    """The suffix that names the kernel of a step."""
    if call is None:
        return ""
    if not call.scores:
        return "@window" if plan.is_windowed else "@mean"
    is_long = is_by_sums(size.tokens, size.width, is_causal) and not plan.is_windowed
    return "@linear" if call.is_linear and is_long else "@call"
