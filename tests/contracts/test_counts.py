"""Counts of multiply-adds and parameters, for a thousand random mechanisms at three sizes.

The multiply-adds that fvcore counts call by call equal torch's own count of the compiled module,
which counts two operations per multiply-add.
Torch does not count ``addcmul``, by which additive scores sum their hidden units; ``UNITS`` adds
its multiply-adds.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any, Final

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from nas.compiler import Plan, build_attention, resolve
from nas.compiler.lowering import distributed, lower
from nas.costs import CostContext, attention_cost
from nas.costs.profile import macs, params
from nas.genome import Genome, ModelSizes, Visibility
from nas.genome.canonical import canonicalise
from nas.genome.mechanisms import MECHANISMS
from nas.training.user_check import UNCOUNTED
from tests.compiler.test_lowering import CASES, DOT, attend
from tests.genomes import build
from tests.samples import samples

SPACES: Final = ("attention_v1", "attention_v2")
EACH: Final = 500
BLOCKS: Final = 10  # shares of the work, for several processes
# A quarter of the heads, and a quarter of a head's width, must be whole.
SIZES: Final = tuple(ModelSizes(*s) for s in ((64, 8, 1, 9), (32, 4, 1, 21), (96, 12, 1, 14)))
# Scores that sum their hidden units by addcmul, and how many units each pair of tokens has.
UNITS: Final = {
    "additive_attention_score": lambda width, params: width,
    "neural_attention": lambda width, params: params["width"],
}
EXAMPLES: Final = tuple(mechanism.genome for mechanism in MECHANISMS.values())


def _solve(left: Any, right: Any, *args: Any, out_shape: Any = (), **rest: Any) -> int:
    return right[-2] * (right[-2] - 1) * math.prod(right) // right[-2]  # unit diagonal


# Twice the multiply-adds of operations that torch does not count.
OPERATION_COUNTS: Final[dict[Any, Any]] = {
    torch.ops.aten.linalg_solve_triangular: _solve,
    **UNCOUNTED,
}


@cache
def genomes(each: int) -> tuple[Genome, ...]:
    """Distinct samples of both spaces, at most ``each`` of one."""
    return tuple(dict.fromkeys(genome for name in SPACES for genome in samples(name, each)))


def test_counts_agree_with_torch() -> None:
    for genome in (*EXAMPLES, *genomes(8)):
        check(genome, SIZES[0])


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_counts_agree_for_a_thousand_genomes(block: int, sizes: ModelSizes) -> None:
    for genome in genomes(EACH)[block::BLOCKS]:
        check(genome, sizes)


def check(genome: Genome, sizes: ModelSizes) -> None:
    check_compiled(resolve(genome, sizes, None).plan, sizes)


def check_compiled(plan: Plan, sizes: ModelSizes, is_causal: bool = False) -> None:
    """Compare torch's count of the compiled module with its costs."""
    dim, heads, _, tokens = sizes
    block = build_attention(plan.genome, dim, heads).eval()
    assert sum(p.numel() for p in block.parameters()) == params(plan, CostContext(sizes))
    with (
        FlopCounterMode(display=False, custom_mapping=OPERATION_COUNTS) as counter,
        torch.no_grad(),
    ):
        block(torch.zeros(1, tokens, dim), is_causal=is_causal)
    units = _units(plan, sizes, tokens**2)
    counted = macs(plan, CostContext(sizes, is_causal=is_causal))
    units -= _padding(plan, sizes, is_causal)
    assert counter.get_total_flops() == 2 * (counted - units), plan.genome


def _units(plan: Plan, sizes: ModelSizes, pairs: int) -> int:
    total = 0
    for step in plan.steps:
        if step.primitive.name in UNITS:
            call = plan.call_sizes(step, sizes)
            total += call.heads * pairs * UNITS[step.primitive.name](call.width, step.params)
    return total


def _padding(plan: Plan, sizes: ModelSizes, is_causal: bool) -> int:
    """Multiply-adds by zeros that make keys and values equally wide for fused attention."""
    total = 0
    plan = distributed(plan)
    for call in lower(plan).values():
        if call.score is None or call.is_linear:
            continue
        is_causal = is_causal and not plan.is_windowed
        has_sink = call.has_sink and not call.is_plain_sink(plan)
        has_bias = has_sink or call.has_bias(is_causal)
        score, value = (plan.call_sizes(step, sizes) for step in (call.score, call.sum))
        unequal = abs(score.width + has_bias - value.width * (2 if call.mix else 1))
        widths = sorted((score.width, value.width * (2 if call.mix else 1)))
        if has_bias or (sizes.tokens >= FUSED and widths[1] <= 2 * widths[0]):
            keys = sizes.tokens + has_sink
            queries = keys if is_causal else sizes.tokens
            total += score.heads * queries * keys * unequal
    return total


BILINEAR: Final = attend(("bilinear", "qk"), ("temperature", [0]), normaliser="softmax_one")
FUSED: Final = 256  # keys from which on torch computes attention of unequal widths
LONG: Final = {name: build(*nodes, **given) for name, (nodes, given) in CASES.items()} | {
    "window": replace(build(*BILINEAR), visibility=Visibility(33)),
    "flex_sqa": MECHANISMS["flex_sqa"].genome,
}


@pytest.mark.parametrize("name", LONG)
def test_counts_of_long_sequences_equal_torch(name: str) -> None:
    sizes = ModelSizes(64, 8, 1, 300)
    check_compiled(resolve(LONG[name], sizes, None).plan, sizes, is_causal=True)


def test_linear_attention_and_means_are_linear_in_length() -> None:
    dim, heads = 64, 4
    sums = build(*attend(DOT, normaliser="softmax_free"))
    linear = attention_cost(sums, dim=dim, heads=heads, tokens=4096)
    assert linear["macs"] == 4 * 4096 * dim**2 + 2 * 4096 * dim * (dim // heads)
    mean = attention_cost(MECHANISMS["uniform"].genome, dim=dim, heads=heads, tokens=2048)
    assert mean["macs"] == 2 * 2048 * dim**2
    assert mean["params"] == 2 * dim**2 + dim


def test_normal_form_has_the_same_costs() -> None:
    dim, heads, _, tokens = SIZES[0]
    for genome in (*EXAMPLES, *genomes(8)):
        cost = attention_cost(genome, dim=dim, heads=heads, tokens=tokens)
        form = canonicalise(genome, ModelSizes(dim, heads, 1, tokens))
        assert attention_cost(form, dim=dim, heads=heads, tokens=tokens) == cost
