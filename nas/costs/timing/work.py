"""Count the work of one attention layer, by kind, in a training pass or in decoding a token.

    {"project.macs": 2.1, "scaled_dot_product": 1.1, "softmax@call": 1.1, "layer": 1.0, ...}

A kind is named after a primitive; ``layer`` counts the layer itself. Elements and multiply-adds
(``.macs``) are counted in millions. If a fused kernel replaces a primitive, the kind ends in ``@``
and the kernel's name, because kernels do different work: the kernel for means computes no scores.
``calibrate`` measures the time of one unit of each kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from nas.compiler import Plan
from nas.compiler.kernels.gated import is_in_chunks
from nas.compiler.lowering import Lowered, live, lower
from nas.compiler.plan import Step
from nas.costs.decoding.memory import memory_of, shares_heads, state_numbers
from nas.costs.macs import Call, computed_pairs, is_by_sums, token_width
from nas.genome import ModelSizes, Ref
from nas.genome.primitives import Role, Sizes

Amount = tuple[str, float]

_MILLION: Final = 1e6


def amounts(plan: Plan, sizes: ModelSizes, batch: int, *, is_causal: bool) -> dict[str, float]:
    """Return the work of one attention layer for a batch, forward and backward, by kind.

    A step on pairs of query and key (scores, weights) counts heads times pairs. Any other step
    counts heads times tokens times width.
    """
    # A window's mask is computed once per layer, for all sequences.
    totals = defaultdict(float, layer=1.0, window=float(plan.is_windowed))
    calls = lower(plan)
    read = live(plan, calls)
    work = [*_projections(plan, sizes, read)]
    in_calls = set()
    for call in calls.values():
        work += _call(plan, call, sizes, is_causal=is_causal)
        in_calls |= {step.index for step in (*call.scores, call.normaliser, *call.sums)}
    for step in plan.steps:
        if step.index in in_calls:
            totals["step"] += 1.0
        elif step.index in read:
            # Primitives call different numbers of torch's operations.
            totals[f"{step.primitive.name}.call"] += 1.0
            work += _step(plan, step, _sizes(plan, step, sizes), "")
    for kind, amount in work:
        totals[kind] += amount * batch / _MILLION
    return dict(totals)


def _sizes(plan: Plan, step: Step, sizes: ModelSizes) -> Sizes:
    return plan.call_sizes(step, sizes.dim, sizes.heads, sizes.tokens)


def _projections(plan: Plan, sizes: ModelSizes, read: set[Any]) -> Iterator[Amount]:
    """Yield the work of projecting queries, keys and values, of merging heads, and of W_O."""
    dim, heads, _, tokens = sizes
    for stream in plan.streams:
        if stream.name not in read:
            continue
        width = token_width(stream.type, dim, heads)
        yield ("project" if stream.is_projected else "raw"), tokens * width
        if stream.is_projected:
            yield "project.macs", tokens * dim * width
    yield "merge", tokens * token_width(plan.output, dim, heads)
    if plan.genome.projections.has_wo:
        yield "project", tokens * dim
        yield "project.macs", tokens * dim * plan.merged_width(dim, heads)


def _call(plan: Plan, call: Lowered, sizes: ModelSizes, *, is_causal: bool) -> Iterator[Amount]:
    """Yield the work of a fused call."""
    if call.scores and call.is_linear:
        yield from _linear_call(plan, call, sizes, is_causal=is_causal)
        return
    kernel = "@call" if call.scores else "@window" if plan.is_windowed else "@mean"
    for step in (*call.scores, call.normaliser, *call.sums):
        yield from _step(plan, step, _sizes(plan, step, sizes), kernel)


def _linear_call(
    plan: Plan, call: Lowered, sizes: ModelSizes, *, is_causal: bool
) -> Iterator[Amount]:
    """Yield the work of a fused call whose weights are its scores, up to a factor of each query.

    Such a call multiplies features of queries and keys, of which a token may have many more than
    the operands of the score. Elements are features, or pairs if all pairs are computed.
    """
    score, counted = call.scores[0], Call(plan, call, sizes, is_causal)
    size, width = _sizes(plan, score, sizes), counted.features_width()
    pairs = size.heads * computed_pairs(plan, size.tokens)
    if call.is_gated:
        is_by_pairs = plan.is_windowed or not is_in_chunks(size.tokens, size.gates)
        kernel, numbers = "@gated", pairs * size.gates
    else:
        is_by_pairs = plan.is_windowed or not is_by_sums(size.tokens, width, is_causal)
        kernel, numbers = "@linear", pairs
    if is_by_pairs:
        kernel += ".pairs"
    else:
        numbers = size.heads * size.tokens * width
    name = _name(score, size) + kernel
    yield name, numbers
    yield f"{name}.macs", counted.token_macs() + counted.pair_macs()
    if plan.is_windowed:
        yield f"mask{kernel}", pairs
    if not call.is_grouped:
        for operand in call.read:
            if operand.is_repeated:
                yield f"repeat.tokens{kernel}", size.heads * size.tokens * size.width


def _name(step: Step, size: Sizes) -> str:
    """Return the name of a step's kind; gates of features are other work than gates of heads."""
    return step.primitive.name + (".features" if size.gates > 1 else "")


def _step(plan: Plan, step: Step, size: Sizes, kernel: str) -> Iterator[Amount]:
    name = _name(step, size)
    tokens = size.heads * size.tokens * size.width
    pairs = size.heads * computed_pairs(plan, size.tokens)
    macs = step.primitive.macs(size, step.params)
    if kernel in ("@mean", "@window"):
        if step.role is Role.AGGREGATE:
            yield f"{step.role}{kernel}", tokens
            macs = (pairs if kernel == "@window" else tokens) * size.width
            yield f"{step.role}{kernel}.macs", macs
    elif not step.is_paired:
        yield name, tokens
        yield f"{name}.macs", macs
    elif step.primitive.is_plain_product:
        yield f"{name}{kernel}", pairs
        yield f"product{kernel}.macs", pairs * size.width
    else:
        yield f"{name}{kernel}", pairs
        yield f"{name}.macs", macs
        # Work that depends on hidden units and on choices (an activation, a gate).
        passes = pairs * step.primitive.passes(size, step.params)
        if passes > pairs:
            yield f"{name}.passes", passes
        yield from _choices(step, passes)
    for operand in step.operands:
        if operand.is_repeated:
            kind = "pairs" if operand.is_paired else "tokens"
            yield f"repeat.{kind}{kernel}", pairs if operand.is_paired else tokens
    if plan.is_windowed and step.role is Role.NORMALIZE and kernel != "@window":
        yield f"mask{kernel}", pairs


def _choices(step: Step, amount: float) -> Iterator[Amount]:
    for parameter, value in sorted(step.params.items()):
        if isinstance(value, str | bool):
            yield f"{step.primitive.name}.{parameter}={value}", amount


def decoding_amounts(plan: Plan, sizes: ModelSizes) -> dict[str, float]:
    """Return how much work of each kind one layer does to decode a token after earlier tokens.

    For a single token, calling operations and reading memory take longer than arithmetic. So the
    kinds are calls of each primitive (such as ``softmax.call``), and elements of the key-value
    cache and of the parameters that are read, in millions.
    """
    totals = defaultdict(float, layer=1.0, window=float(plan.is_windowed))
    for kind, amount in _decoding_work(plan, sizes):
        totals[kind] += amount if kind.endswith(".call") else amount / _MILLION
    return dict(totals)


def _decoding_work(plan: Plan, sizes: ModelSizes) -> Iterator[Amount]:
    memory = memory_of(plan, sizes)
    dim, heads, _, tokens = sizes
    held = memory.held(tokens)
    for stream in plan.streams:
        yield "stream.call", 1.0
        if stream.is_projected:
            yield "project.macs", dim * token_width(stream.type, dim, heads)
    if plan.genome.projections.has_wo:
        yield "project.call", 1.0
        yield "project.macs", dim * plan.merged_width(dim, heads)
    yield "row.call", len(set(memory.names.values()))
    if plan.is_windowed:
        yield "copied", held * memory.row(sizes)
    for index in sorted(memory.sums):
        yield "sums.call", 1.0
        yield "sums", memory.sums[index].sum_numbers(plan.steps[index])
        yield "features.call", len(memory.sums[index].call.scores)
    recomputed: set[Ref] = set()
    for index in sorted(memory.called):
        yield from _decoding_call(plan, plan.steps[index], sizes, held)
        if index in memory.states:
            yield "state", state_numbers(plan, plan.steps[index], sizes) or 0
        recomputed |= {o.ref for o in plan.steps[index].operands if o.port.is_past}
    for step in reversed(plan.steps):  # keys and values recomputed from cached rows
        if step.index in recomputed - memory.rows:
            size = plan.call_sizes(step, dim, heads, held)
            yield f"{step.primitive.name}.call", 1.0
            yield f"{step.primitive.name}.tokens", held * size.heads * size.width
            yield f"{step.primitive.name}.macs", step.primitive.macs(size, step.params)
            recomputed |= {operand.ref for operand in step.operands}
    for stream in plan.streams:
        if stream.name in recomputed and not stream.is_projected:
            yield "raw", held * dim


def _decoding_call(plan: Plan, step: Step, sizes: ModelSizes, held: int) -> Iterator[Amount]:
    """Yield the work of one call of a step while a token is decoded.

    A step on pairs of query and key computes the pairs of the token with the cached tokens. Any
    other step computes only the token.

    Args:
        plan: the plan of the mechanism.
        step: the step that is called.
        sizes: the sizes of the model.
        held: the number of tokens in the cache.
    """
    name, keys = step.primitive.name, held if step.is_paired else 1
    size = replace(plan.call_sizes(step, sizes.dim, sizes.heads, keys), rows=1)
    yield f"{name}.call", 1.0
    yield f"{name}.macs", step.primitive.macs(size, step.params)
    if step.is_paired:
        passes = size.pairs * size.heads * step.primitive.passes(size, step.params)
        yield f"{name}.pairs", passes
        yield from _choices(step, passes)
    for operand in step.operands:
        if operand.is_repeated and not shares_heads(step):
            yield "repeat.call", 1.0
            if operand.port.is_past or operand.is_paired:
                yield "repeat", keys * size.heads * (1 if operand.is_paired else size.width)
