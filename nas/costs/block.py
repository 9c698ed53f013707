"""Counts of one attention block in its reference form, checked against closed formulas."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache

from nas.common.errors import NasError
from nas.compiler.plan import Plan, plan_as_written
from nas.costs.counting import ELEMENTWISE, TRACED_LENGTHS, count_operations
from nas.costs.macs import closed_form_macs, computed_pairs
from nas.genome import Genome, ModelSizes, Visibility


def dense_plan(plan: Plan) -> Plan:
    """A plan without its window, as the reference form computes it: every pair."""
    return replace(plan, genome=replace(plan.genome, visibility=Visibility()))


def elementwise(plan: Plan, sizes: ModelSizes, qkv_bias: bool = False) -> int:
    """The number of elements that pointwise operations, reductions and norms read or write.

    Raises:
        GenomeError: the mechanism does not exist at this size.
        NasError: there is no cost rule for an operation in it.
    """
    total = _counts(plan.genome, sizes, sizes.tokens, qkv_bias)[ELEMENTWISE]
    if hidden := sizes.tokens**2 - computed_pairs(plan, sizes.tokens):
        few, more, most = (
            _counts(plan.genome, sizes, n, qkv_bias)[ELEMENTWISE] for n in TRACED_LENGTHS
        )
        step = TRACED_LENGTHS[1] - TRACED_LENGTHS[0]
        # The quadratic coefficient is the number of elements per pair.
        total -= hidden * ((few - 2 * more + most) // (2 * step**2))
    return total


def seed_compatible_macs(plan: Plan, sizes: ModelSizes, qkv_bias: bool = False) -> int:
    """MACs that unmodified fvcore counts for the published encoder layer with this mechanism.

    The layer has biases, layer norms at 5 per element and a feed-forward width of 4 d. fvcore omits
    convolutions with padding 'same' and sparsemax.
    """
    dim, heads, _, tokens = sizes
    counts = _counts(plan.genome, sizes, tokens, qkv_bias)
    macs = sum(count for name, count in counts.items() if name != ELEMENTWISE)
    hidden, norms = 0, 2 * tokens * dim
    for step in plan.steps:
        at = plan.call_sizes(step, dim, heads, tokens)
        if step.primitive.name == "convolutional_score":
            hidden += step.primitive.macs(at, step.params) - at.heads * tokens**2 * at.width
        if step.primitive.name == "layer_norm":
            norms += at.heads * tokens * at.width
    return macs - hidden + 5 * norms + 8 * tokens * dim**2


@lru_cache(maxsize=256)
def _counts(genome: Genome, sizes: ModelSizes, tokens: int, qkv_bias: bool) -> Counter[str]:
    """Operations of the reference form at a length, checked against the closed formulas."""
    dense = dense_plan(plan_as_written(genome))
    counts = count_operations(dense, sizes.dim, sizes.heads, tokens, qkv_bias)
    macs = sum(count for name, count in counts.items() if name != ELEMENTWISE)
    expected = closed_form_macs(dense, sizes._replace(tokens=tokens))
    if macs != expected:
        raise NasError(
            f"the MACs counted, {macs}, differ from the closed formulas of "
            f"{', '.join(sorted({s.primitive.name for s in dense.steps}))}: {expected}; "
            "expected a primitive's macs to state what its module computes."
        )
    return counts
