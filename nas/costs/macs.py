"""Multiply-adds that a compiled block executes.

The rules of the count:

- Linear attention is counted in the order in which its kernel multiplies. A mean over the whole
  sequence multiplies nothing.
- Pairs that a causal mask or a window hides are computed and counted.
- The kernels are those of a CPU in 32 bits. The fused kernel needs keys and values of equal width;
  the zeros with which it pads them are counted. The additional feature that represents
  forget gates is not counted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final, NamedTuple

from nas.compiler import Plan
from nas.compiler.kernels import counts
from nas.compiler.kernels.gated import gated_macs, is_in_chunks
from nas.compiler.kernels.runtime import fused_from
from nas.compiler.lowering import Lowered, live, lower
from nas.compiler.plan import Step
from nas.genome import ModelSizes, Ref
from nas.genome.primitives.base import Sizes
from nas.genome.types import Type

CAUSAL_PAIRS: Final = 256  # most tokens for which causal linear attention computes all pairs
CAUSAL_CHUNK: Final = 128  # tokens per chunk of longer sequences


class Computed(NamedTuple):
    """Multiply-adds that a block executes.

    Attributes:
        all: all multiply-adds.
        tokens: the multiply-adds of projections and of other maps of single tokens.
    """

    all: int
    tokens: int


def computed_macs(plan: Plan, sizes: ModelSizes, is_causal: bool = False) -> Computed:
    """Return the multiply-adds of a compiled block at batch size 1."""
    calls = lower(plan)
    needed = live(plan, calls)
    tokens, pairs = _projections(plan, sizes, needed), 0
    for step in plan.steps:
        if step.index in calls:
            pairs += call_macs(plan, calls[step.index], sizes, is_causal)
        elif step.index in needed:
            of_tokens, of_pairs = _step_macs(plan, step, sizes)
            tokens, pairs = tokens + of_tokens, pairs + of_pairs
    return Computed(tokens + pairs, tokens)


def closed_form_macs(plan: Plan, sizes: ModelSizes) -> int:
    """Return the MACs of a block that computes all pairs of query and key, by declared formulas.

    The formulas are the ``macs`` of the primitives.
    """
    projections = _projections(plan, sizes, {stream.name for stream in plan.streams})
    return projections + sum(s.primitive.macs(_sizes(plan, s, sizes), s.params) for s in plan.steps)


def is_by_sums(keys: int, width: int, is_causal: bool) -> bool:
    """Return whether linear attention first multiplies keys with values, which needs no pairs.

    Otherwise it first multiplies queries with keys.
    """
    return keys > (CAUSAL_PAIRS if is_causal else width)


def token_width(type_: Type, dim: int, heads: int) -> int:
    """Return the number of elements per token, over all heads, of a tensor of this type."""
    return type_.head_count(heads) * type_.channels(dim, heads)


def _projections(plan: Plan, sizes: ModelSizes, read: Collection[Ref]) -> int:
    """Return the multiply-adds of W_O and of the projections of the streams in ``read``."""
    streams = (s for s in plan.streams if s.is_projected and s.name in read)
    width = sum(token_width(stream.type, sizes.dim, sizes.heads) for stream in streams)
    if plan.genome.projections.has_wo:
        width += plan.merged_width(sizes.dim, sizes.heads)
    return sizes.tokens * sizes.dim * width


def _sizes(plan: Plan, step: Step, sizes: ModelSizes) -> Sizes:
    return plan.call_sizes(step, sizes.dim, sizes.heads, sizes.tokens)


def _step_macs(plan: Plan, step: Step, sizes: ModelSizes) -> tuple[int, int]:
    """Return a step's multiply-adds on single tokens, and on pairs of query and key."""
    whole = _sizes(plan, step, sizes)
    if (counted := counts().get(step.primitive.module)) is not None:
        return counted(whole), 0
    without_pairs = step.primitive.macs(replace(whole, allowed=0), step.params)
    return without_pairs, step.primitive.macs(whole, step.params) - without_pairs


def call_macs(plan: Plan, call: Lowered, sizes: ModelSizes, is_causal: bool) -> int:
    """Return the multiply-adds of a kernel call: of its scores and its aggregation."""
    tokens, score = sizes.tokens, call.score
    values, heads = _sizes(plan, call.sum, sizes).width, call.sum.type.head_count(sizes.heads)
    if score is None:  # a mean within a window multiplies values before their heads are repeated
        groups = call.sum.operands[1].type.head_count(sizes.heads)
        return groups * tokens * tokens * values if plan.is_windowed else 0
    size = _sizes(plan, score, sizes)
    values += call.is_ratio  # the sum of the weights is an additional feature of the values
    if call.is_gated and not plan.is_windowed and is_in_chunks(tokens, size.gates):
        return gated_macs(size, values) * (1 if is_causal else 2)
    is_causal = is_causal and not plan.is_windowed  # a window's mask is causal itself
    is_plain_sum = call.is_linear and not call.is_gated and not plan.is_windowed
    if is_plain_sum and is_by_sums(tokens, size.width, is_causal):
        if is_causal:
            padded = tokens + -tokens % CAUSAL_CHUNK
            return heads * padded * (CAUSAL_CHUNK * (size.width + values) + 2 * size.width * values)
        read = score.operands[1], call.sum.operands[1]
        groups = max(operand.type.head_count(sizes.heads) for operand in read)
        return size.width * tokens * values * (heads + groups)
    is_fused = not call.is_linear and not (call.decay and (plan.is_windowed or not is_causal))
    if is_fused and tokens >= fused_from(size.width, values):  # one width for keys and values
        return heads * tokens * tokens * 2 * max(size.width, values)
    return heads * tokens * tokens * (size.width + values)
