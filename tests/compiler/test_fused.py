"""Fused attention: taken where the graph is dot product, softmax and sum, and equal to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch

from nas.compiler import build_attention, emit
from nas.mechanisms import MECHANISMS
from tests.compiler.test_compiler import both, values_and_gradients

if TYPE_CHECKING:
    from nas.genome import Genome

    Build = Callable[..., Genome]

LONG = 260  # where a CPU takes the fused kernel
DOT_PRODUCTS = ("mha", "gqa", "sqa", "rsqa", "patterns", "messages", "champion_control")


def is_fused(genome: Genome) -> bool:
    source = emit(genome, 32, 8)
    return "dot_product_attention(" in source or "shaped_attention(" in source


@pytest.mark.parametrize("name", DOT_PRODUCTS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", ["none", "padding", "mask", "row"])
def test_fused_attention_equals_the_interpreter(name: str, is_causal: bool, kind: str) -> None:
    genome = MECHANISMS[name].genome
    assert is_fused(genome)
    x = torch.randn(2, LONG, 32, dtype=torch.float64)
    masks: dict[str, object] = {}
    if kind == "padding":
        masks["key_padding_mask"] = (torch.arange(LONG) >= 250).expand(2, LONG)
    if kind in ("mask", "row"):
        allowed = torch.rand(LONG, LONG) > 0.3
        if kind == "row":
            allowed[7] = False  # a query that sees nothing gets zeros
        masks["attn_mask"] = allowed
    found = [values_and_gradients(b, x, is_causal=is_causal, **masks) for b in both(genome, 32, 8)]
    for ours, theirs in zip(*found, strict=True):
        assert bool(torch.isfinite(ours).all())
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_fused_and_plain_sources_have_the_same_weights() -> None:
    genome = MECHANISMS["gqa"].genome
    torch.manual_seed(0)
    fused = build_attention(genome, 32, 8)
    torch.manual_seed(0)
    plain = build_attention(genome, 32, 8, fuse=False)
    assert "dot_product_attention(" not in emit(genome, 32, 8, fuse=False)
    assert list(fused.state_dict()) == list(plain.state_dict())
    x = torch.randn(2, LONG, 32)
    torch.testing.assert_close(fused(x, is_causal=True), plain(x, is_causal=True))


@pytest.mark.parametrize(
    "nodes",
    [
        (("scaled_dot_product", "qk"), ("sparsemax", [0]), ("weighted_sum", [1, "v"])),
        # A curve that is not the last change of its products.
        (
            ("scaled_dot_product", "qk"),
            ("softcap", [0]),
            ("temperature", [1]),
            ("softmax", [2]),
            ("weighted_sum", [3, "v"]),
        ),
        # What softmax_one sees and softmax does not.
        (("distance", "qk"), ("softmax_one", [0]), ("weighted_sum", [1, "v"])),
        (
            ("scaled_dot_product", "qk"),
            ("topk_filter", [0]),
            ("softmax", [1]),
            ("weighted_sum", [2, "v"]),
        ),
        # Weights and scores that somebody else reads too.
        (
            ("scaled_dot_product", "qk"),
            ("softmax", [0]),
            ("weighted_sum", [1, "v"]),
            ("weighted_sum", [1, 2]),
        ),
        (
            ("scaled_dot_product", "qk"),
            ("softmax", [0]),
            ("sparsemax", [0]),
            ("weighted_sum", [1, "v"]),
            ("weighted_sum", [2, 3]),
        ),
    ],
)
def test_other_graphs_are_left_as_they_are(
    genome: Build, nodes: tuple[tuple[object, ...], ...]
) -> None:
    assert not is_fused(genome(*nodes))
