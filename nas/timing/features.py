"""What a mechanism's time is made of: amounts of work by kind, a function of its plan and sizes.

    {"project.macs": 2.1, "scaled_dot_product": 1.1, "softmax@call": 1.1, ...}

An amount is a million numbers (or multiply-adds) of one batch; what it takes of time is a unit that
``calibrate`` measures. A step about pairs of tokens counts heads times pairs, one about tokens
heads times tokens times width. Where the compiler makes several steps one call, their names say so
(``softmax@network``), for they are other kernels then: a mean needs no scores, linear attention no
pairs, the units of a network over pairs stay in cache.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from nas.compiler.lowering import RULES, live, lower

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nas.compiler import Plan
    from nas.compiler.lowering import Lowered
    from nas.compiler.plan import Step
    from nas.genome import ModelSizes
    from nas.primitives import Sizes

Amount = tuple[str, float]

MILLION: Final = 1e6
# Scores that are products of tokens as they are, without work of their own beside it.
_PRODUCTS: Final = ("scaled_dot_product", "weighted_sum")


def amounts(plan: Plan, sizes: ModelSizes, batch: int) -> dict[str, float]:
    """The work of one attention layer, forward and backward, by kind."""
    found: Counter[str] = Counter({"layer": 0.0})
    calls = lower(plan, RULES)
    read = live(plan, calls)
    member = {
        step.index: call
        for call in calls.values()
        for step in (*call.scores, call.normaliser, *call.sums)
    }
    for kind, amount in _projections(plan, sizes, read):
        found[kind] += amount * batch / MILLION
    for step in plan.steps:
        call = member.get(step.index)
        if call is None and step.index not in read:
            continue
        size = plan.call_sizes(step, sizes.dim, sizes.heads, sizes.tokens)
        for kind, amount in _step(plan, step, size, call):
            found[kind] += amount * batch / MILLION
        found["step"] += 1.0
    return {**found, "layer": 1.0}


def _projections(plan: Plan, sizes: ModelSizes, read: set[Any]) -> Iterator[Amount]:
    """The streams, and what merges the heads."""
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


def _step(plan: Plan, step: Step, size: Sizes, call: Lowered | None) -> Iterator[Amount]:
    """The work of one step, alone or as a part of a call."""
    name, way = step.primitive.name, _way(call, size)
    tokens, pairs = size.heads * size.tokens * size.width, size.heads * size.tokens**2
    if way == "@mean":
        yield from [(f"{name}{way}", tokens)] if tokens else []
        return
    if not step.is_paired or way == "@linear":
        yield f"{name}{way}", tokens or size.heads * size.tokens
        if name == "weighted_sum":
            yield f"{name}{way}.macs", 2 * tokens * size.width
        elif way != "@linear":
            yield f"{name}.macs", step.primitive.macs(size, step.params)
        yield from _repeats(step, size, way)
        return
    yield f"{name}{way}", pairs
    if name in _PRODUCTS:
        yield f"product{way}.macs", pairs * size.width
    else:
        yield f"{name}.macs", step.primitive.macs(size, step.params)
    yield from _choices(step, pairs * step.primitive.passes(size, step.params))
    yield from _repeats(step, size, way)
    if plan.is_windowed and "mask" in step.primitive.extras:
        yield f"mask{way}", pairs


def _way(call: Lowered | None, size: Sizes) -> str:
    """How a step is computed, as an ending of its name."""
    if call is None:
        return ""
    if not call.scores:
        return "@mean"
    if call.scores_pairs:
        return "@network"
    is_linear = call.normaliser.primitive.name == "softmax_free" and size.tokens > size.width
    return "@linear" if is_linear else "@call"


def _choices(step: Step, amount: float) -> Iterator[Amount]:
    """What depends on words and flags among the parameters: an activation, a gate."""
    for parameter, value in sorted(step.params.items()):
        if isinstance(value, str | bool):
            yield f"{step.primitive.name}.{parameter}={value}", amount


def _repeats(step: Step, size: Sizes, way: str) -> Iterator[Amount]:
    """Operands of fewer heads are given copies, or shared by the kernel."""
    for operand in step.operands:
        if operand.is_repeated:
            rows = size.tokens if operand.is_paired else size.width
            kind = "pairs" if operand.is_paired else "tokens"
            yield f"repeat.{kind}{way}", size.heads * size.tokens * rows
