"""Scores that a plug-in declares as products are lowered, decoded and counted."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from nas.compiler import build_attention, emit, make_plan
from nas.costs import attention_cost
from nas.costs.decoding import Decoder
from nas.costs.macs import computed_macs
from nas.genome import Genome, ModelSizes
from nas.testing import check_primitive
from tests.compiler.test_compiler import check_equal, masks

DIM, HEADS, TOKENS = 32, 4, 300
Build = Callable[..., Genome]


@pytest.fixture(autouse=True)
def _plugin(restored_registries: None) -> None:
    """Register the example's primitive."""
    import_module("tests.plugins.linear_score")


@pytest.fixture
def linear(genome: Build) -> Genome:
    return genome(
        ("elu_product", "qk"), ("softmax_free", [0]), ("weighted_sum", [1, "v"]), kv_heads="1/2"
    )


def features(tokens: torch.Tensor) -> torch.Tensor:
    return torch.where(tokens > 0, tokens + 1, tokens.exp())


def test_plugin_score_keeps_the_promises_of_primitives() -> None:
    check_primitive("elu_product", lambda module, q, k: features(q) @ features(k).mT)


@pytest.mark.parametrize("kind", masks(1))
@pytest.mark.parametrize("is_causal", [False, True])
def test_plugin_score_is_lowered_and_equals_the_interpreter(
    linear: Genome, kind: str, is_causal: bool
) -> None:
    """Values and gradients, in float64."""
    assert "linear_attention(" in emit(linear, DIM, HEADS)
    check_equal(linear, TOKENS, masks(TOKENS)[kind] | {"is_causal": is_causal and kind != "row"})


def test_plugin_score_under_softmax_is_fused(genome: Build) -> None:
    scores = ("elu_product", "qk"), ("temperature", [0]), ("softmax", [1])
    fused = genome(*scores, ("weighted_sum", [2, "v"]))
    assert "dot_product_attention(" in emit(fused, DIM, HEADS)
    check_equal(fused, 60, {"is_causal": True})


def test_plugin_score_is_decoded_from_sums_that_do_not_grow(linear: Genome) -> None:
    block = build_attention(linear, DIM, HEADS).double().eval()
    decoder = Decoder(block, context=4096)
    x = torch.randn(2, 40, DIM, dtype=torch.float64)
    rows, cache_sizes = [], set()
    for token in x.split(1, dim=1):
        rows.append(decoder.step(token))
        cache_sizes.add(sum(tensor.numel() for tensor in decoder.cache.values()))
    torch.testing.assert_close(torch.cat(rows, 1), block(x, is_causal=True), rtol=1e-9, atol=1e-9)
    assert cache_sizes == {2 * HEADS // 2 * (DIM // HEADS) ** 2}


@pytest.mark.parametrize("is_causal", [False, True])
def test_plugin_score_is_counted_as_it_runs(linear: Genome, is_causal: bool) -> None:
    block = build_attention(linear, DIM, HEADS)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        block(torch.randn(1, TOKENS, DIM), is_causal=is_causal)
    sizes = ModelSizes(DIM, HEADS, 1, TOKENS)
    charged: Any = computed_macs(make_plan(linear, sizes), sizes, is_causal)
    assert charged.all == counter.get_total_flops() / 2
    assert (
        attention_cost(linear, dim=DIM, heads=HEADS, tokens=TOKENS).attention_macs < TOKENS**2 * DIM
    )


def test_plugin_score_runs_in_linear_time_under_ratio_by_its_sign(genome: Build) -> None:
    nodes = ("ratio", [0]), ("weighted_sum", [1, "v"])
    sources = [emit(genome((op, "qk"), *nodes), DIM, HEADS) for op in ("elu_product", "cosine")]
    assert ["linear_attention(" in source for source in sources] == [True, False]
