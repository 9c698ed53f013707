"""Mechanisms, blocks and comparisons that the tests of surgery share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from nas.compiler import build_attention
from nas.genome import Genome, Visibility
from nas.store.sources import load_genome
from nas.surgery import swap_attention
from nas.surgery.core import AttentionCore
from tests.genomes import build
from tests.tensors import add_noise, with_gradients

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
DIM, HEADS, WIDTH, LENGTH = 32, 4, 8, 7
DOT = ("scaled_dot_product", "qk")
SOFTMAX = (("softmax", [0]), ("weighted_sum", [1, "v"]))
PLAIN = build(DOT, *SOFTMAX)
_ROTATED = (("rope", "q"), ("rope", "k"), ("scaled_dot_product", [0, 1]))
_NO_PROJECTIONS = dict.fromkeys(("has_wq", "has_wk", "has_wv", "has_wo"), False)


def windowed(genome: Genome, window: int, global_tokens: int = 0) -> Genome:
    """The genome with a window."""
    return replace(genome, visibility=Visibility(window, global_tokens))


# Mechanisms with other projections, positions and scores than the named ones.
VARIANTS = {
    "linear": build(DOT, ("softmax_free", [0]), SOFTMAX[1]),
    "sigmoid": build(DOT, ("sigmoid", [0], {"length_bias": True}), SOFTMAX[1]),
    "without wq": build(DOT, *SOFTMAX, has_wq=False),
    "without wk": build(DOT, *SOFTMAX, has_wk=False),
    "without any": build(DOT, *SOFTMAX, **_NO_PROJECTIONS),
    "rope": build(*_ROTATED, ("softmax", [2]), ("weighted_sum", [3, "v"]), kv_heads="one"),
    "alibi": build(DOT, ("alibi", [0]), ("softmax", [1]), ("weighted_sum", [2, "v"])),
}
DECODABLE = VARIANTS | {
    "window": windowed(PLAIN, 5),
    "flex": windowed(build(DOT, *SOFTMAX, q_heads="1/2", kv_heads="1/4"), 4, 2),
    "qana": load_genome("qana:init=random,rope=true"),
    "without wo": build(DOT, *SOFTMAX, has_wo=False),
    "values as queries": build(("scaled_dot_product", "vk"), *SOFTMAX),
    "rotated values": build(
        *(("rope", "v"), *_ROTATED[:2], ("scaled_dot_product", [1, 2]), ("softmax", [3])),
        *(("weighted_sum", [4, 0]), ("rope", [5])),
    ),
    "rsqa": load_genome("rsqa"),
    "champion": load_genome("champion_2025"),
}


def built(
    genome: Genome, *, qkv_bias: bool = False, heads: int = HEADS, **options: Any
) -> nn.Module:
    """A block in float64 with random weights everywhere, as after training."""
    torch.manual_seed(0)
    block = build_attention(genome, DIM, heads, qkv_bias=qkv_bias, **options).double()
    add_noise(block, 0.2)
    return block


def swapped(model: nn.Module, **options: Any) -> Any:
    """A copy of the model with QANA, which equals softmax attention before training."""
    other = deepcopy(model)
    assert swap_attention(other, "qana", **options)
    return other


def cores(model: nn.Module) -> list[AttentionCore]:
    return [m for m in model.modules() if isinstance(m, AttentionCore)]


def randomise(model: nn.Module) -> None:
    """Add noise to the mechanism's parameters, so that the mechanism changes the outputs."""
    torch.manual_seed(2)
    for core in cores(model):
        add_noise(core, 0.5)


def tokens(length: int = LENGTH) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, length, DIM, dtype=torch.float64, generator=generator)


def assert_same_blocks(block: nn.Module, other: nn.Module, atol: float = 1e-11) -> None:
    """Equal outputs and gradients of the input, without masks and with."""
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1, 5:] = True
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    for mask in ({}, {"key_padding_mask": padding}, {"attn_mask": causal}):
        results = []
        for module in (block, other):
            x = tokens().requires_grad_()
            results.append(with_gradients(module(x, **mask), [x]))
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b, rtol=0.0, atol=atol * (1 + a.abs().max().item()))


def assert_same(
    found: Callable[..., Any], expected: Callable[..., Any], *arguments: Any, **options: Any
) -> None:
    """Equal results of two calls with the same seed."""
    results = []
    for model in (found, expected):
        torch.manual_seed(1)
        results.append(model(*arguments, **options))
    torch.testing.assert_close(*results, **TOLERANCE)


def with_cache(model: nn.Module, cache: Any) -> dict[str, Any]:
    """Return the argument that hands a cache to a Transformers model: "cache" from 5.24 on."""
    names = inspect.signature(model.forward).parameters
    return {"cache" if "cache" in names else "past_key_values": cache}
