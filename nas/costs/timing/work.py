"""The work of one attention layer in a training pass, by kind, and the time that it takes.

    {"project.macs": 2.1, "scaled_dot_product": 1.1, "softmax@call": 1.1, "call": 3.0, ...}

A kind is named after a primitive; ``layer`` counts the layer itself, and ``call`` its calls of
primitives. Elements and multiply-adds (``.macs``) are counted in millions. If a kernel replaces a
primitive, the kind ends in ``@`` and the kernel's name, because kernels do different work.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nas.compiler import Plan
from nas.compiler.kernels.attention import is_by_sums
from nas.compiler.kernels.gated import is_in_chunks
from nas.compiler.kernels.quadratic import is_by_features
from nas.compiler.lowering import Lowered, distributed, live, lower
from nas.compiler.plan import Step
from nas.costs import CostContext
from nas.costs.operations import ELEMENTWISE
from nas.costs.profile import profile, total_macs
from nas.genome import ModelSizes
from nas.genome.primitives import Role, Sizes

Amount = tuple[str, float]

_MILLION: Final = 1e6


def layer_ms(plan: Plan, context: CostContext) -> float:
    """Predict the milliseconds of an attention layer for one training batch.

    ConfigError is raised if the context has no valid calibration, GenomeError if the mechanism does
    not exist at these sizes.
    """
    calibration = context.unit_times
    work = amounts(plan, context.sizes, calibration.batch, is_causal=context.is_causal)
    units = calibration.units
    return math.fsum(amount * _unit(kind, units) for kind, amount in work.items() if amount)


def amounts(plan: Plan, sizes: ModelSizes, batch: int, *, is_causal: bool) -> dict[str, float]:
    """Return the work of one attention layer for a batch, forward and backward, by kind.

    Steps on pairs of query and key count heads times pairs, others heads times tokens and width.
    """
    # A window's mask is computed once per layer, for all sequences.
    totals = defaultdict(float, layer=1.0, window=float(plan.is_windowed))
    plan = distributed(plan)
    calls = lower(plan)
    read = live(plan, calls)
    work = [*_projections(plan, sizes, read)]
    in_calls = set()
    for call in calls.values():
        work += _call(plan, call, sizes, is_causal=is_causal)
        in_calls |= {step.index for step in call.steps}
    for step in plan.steps:
        if step.index in in_calls or step.index in read:
            totals["call"] += 1.0
        if step.index in read and step.index not in in_calls:
            work += _step(plan, step, sizes, "")
    for kind, amount in work:
        totals[kind] += amount * batch / _MILLION
    return dict(totals)


def _projections(plan: Plan, sizes: ModelSizes, read: set[Any]) -> Iterator[Amount]:
    dim, heads, _, tokens = sizes
    for name, (width, out) in plan.linears(dim, heads).items():
        if name in read or name == "o":
            yield "project", tokens * out
            yield "project.macs", tokens * width * out
    for stream in plan.streams:
        if stream.name in read and not stream.is_projected:
            yield "raw", tokens * stream.type.token_width(dim, heads)
    yield "merge", tokens * plan.output.token_width(dim, heads)


def _call(plan: Plan, call: Lowered, sizes: ModelSizes, *, is_causal: bool) -> Iterator[Amount]:
    if call.is_linear:
        yield from _linear_call(plan, call, sizes, is_causal=is_causal)
        return
    kernel = "@call" if call.score else "@window" if plan.is_windowed else "@mean"
    for step in call.steps:
        yield from _step(plan, step, sizes, kernel)


def _linear_call(
    plan: Plan, call: Lowered, sizes: ModelSizes, *, is_causal: bool
) -> Iterator[Amount]:
    """Yield the work of linear attention: features, or pairs if all pairs are computed."""
    assert call.score is not None, "linear attention has scores"
    size = plan.call_sizes(call.score, sizes)
    pairs = size.heads * size.tokens**2
    if call.is_gated:
        is_by_pairs = plan.is_windowed or not is_in_chunks(size.tokens, size.gates)
        kernel, numbers = "@gated", pairs * size.gates
    else:
        without_pairs = is_by_features if call.is_quadratic else is_by_sums
        is_by_pairs = plan.is_windowed or not without_pairs(size.tokens, size.width, is_causal)
        kernel, numbers = "@linear", pairs
    if is_by_pairs:
        kernel += ".pairs"
    else:
        numbers = size.heads * size.tokens * call.features(size.width)
    name = _name(call.score, size) + kernel
    yield name, numbers
    yield f"{name}.macs", total_macs(profile(plan, call, sizes, is_causal=is_causal))
    if plan.is_windowed:
        yield f"mask{kernel}", pairs
    if call.is_gated:
        for operand, _ in call.operands:
            if operand.is_repeated:
                yield f"repeat.tokens{kernel}", size.heads * size.tokens * size.width


def _name(step: Step, size: Sizes) -> str:
    # Gates of features are other work than gates of heads.
    return step.primitive.name + (".features" if size.gates > 1 else "")


def _step(plan: Plan, step: Step, sizes: ModelSizes, kernel: str) -> Iterator[Amount]:
    size = plan.call_sizes(step, sizes)
    name = _name(step, size)
    tokens = size.heads * size.tokens * size.width
    pairs = size.heads * size.tokens**2
    if kernel in ("@mean", "@window"):
        if step.role is Role.AGGREGATE:
            yield f"{step.role}{kernel}", tokens
            products = pairs if kernel == "@window" else tokens
            yield f"{step.role}{kernel}.macs", products * size.width
    elif not step.is_paired:
        yield name, tokens
        yield f"{name}.macs", total_macs(profile(plan, step, sizes))
    elif step.primitive.name in ("scaled_dot_product", "weighted_sum"):
        yield f"{name}{kernel}", pairs
        yield f"product{kernel}.macs", pairs * size.width
    else:
        counts = profile(plan, step, sizes)
        yield f"{name}{kernel}", pairs
        yield f"{name}.macs", total_macs(counts)
        if counts[ELEMENTWISE] > pairs:  # it grows with hidden units
            yield f"{name}.elements", counts[ELEMENTWISE]
    for operand in step.operands:
        if operand.is_repeated:
            kind = "pairs" if operand.is_paired else "tokens"
            yield f"repeat.{kind}{kernel}", pairs if operand.is_paired else tokens
    if plan.is_windowed and step.role is Role.NORMALIZE and kernel != "@window":
        yield f"mask{kernel}", pairs


def _unit(kind: str, units: Mapping[str, float]) -> float:
    """Return the unit time of a kind of work; if not measured, the median unit time of its like."""
    if kind in units:
        return units[kind]
    is_macs = kind.endswith(".macs")
    like = [unit for name, unit in units.items() if unit and name.endswith(".macs") == is_macs]
    return statistics.median(like or units.values())
