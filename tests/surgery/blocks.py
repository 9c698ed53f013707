"""Blocks as after training, tokens and a comparison, for what merges and factors them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nas.compiler import build_attention
from nas.genome import Genome

DIM, HEADS, WIDTH, LENGTH = 32, 4, 8, 7
DOT = ("scaled_dot_product", "qk")
SOFTMAX = (("softmax", [0]), ("weighted_sum", [1, "v"]))


def built(
    genome: Genome, *, qkv_bias: bool = False, heads: int = HEADS, **options: Any
) -> nn.Module:
    """A block in float64 with every weight away from its start, as after training."""
    torch.manual_seed(0)
    block = build_attention(genome, DIM, heads, qkv_bias=qkv_bias, **options).double()
    with torch.no_grad():
        for weight in block.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return block


def tokens(seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, LENGTH, DIM, dtype=torch.float64, generator=generator)


def assert_same(block: nn.Module, other: nn.Module, atol: float = 1e-11) -> None:
    """Equal outputs and gradients of the input, without masks and with."""
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1, 5:] = True
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    for mask in ({}, {"key_padding_mask": padding}, {"attn_mask": causal}):
        results = []
        for one in (block, other):
            x = tokens().requires_grad_()
            out = one(x, **mask)
            weight = torch.linspace(-1.0, 1.0, out.numel(), dtype=out.dtype).view_as(out)
            results.append((out, *torch.autograd.grad((out * weight).sum(), x)))
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b, rtol=0.0, atol=atol * (1 + a.abs().max().item()))
