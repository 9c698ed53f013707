"""Whole models of the Sparse Query Attention paper have the sizes that it published (S4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from nas.compiler import build_attention
from nas.mechanisms import MECHANISMS


def millions_of(module: nn.Module) -> str:
    return f"{sum(p.numel() for p in module.parameters()) / 1e6:.3g}"


def dense_ff(dim: int) -> nn.Module:
    """SwiGLU: up and gate in one map."""
    return nn.Sequential(nn.Linear(dim, 2 * 768), nn.Linear(768, dim))


def moe_ff(dim: int) -> nn.Module:
    """A router and 12 SwiGLU experts of width 256."""
    experts = (nn.Sequential(nn.Linear(dim, 2 * 256), nn.Linear(256, dim)) for _ in range(12))
    return nn.Sequential(nn.Linear(dim, 12, bias=False), *experts)


def model(
    name: str, *, dim: int, heads: int, depth: int, vocabulary: int, ff: Callable[[int], nn.Module]
) -> nn.Module:
    """A language model of section 4.1, as far as parameters go.

    Pre-norm layers of attention and feed-forward, RMS norms, rotary positions (no parameters), no
    norm at the end, and an output layer with a bias that shares nothing with the embedding. The
    paper gives width, depth and heads; vocabulary and feed-forward are those of the model cards
    that its footnotes 1 and 2 link to, the biases those of the authors' code.
    """
    with torch.device("meta"):
        layers = (
            nn.ModuleList(
                [
                    nn.RMSNorm(dim),
                    build_attention(MECHANISMS[name].genome, dim, heads),
                    nn.RMSNorm(dim),
                    ff(dim),
                ]
            )
            for _ in range(depth)
        )
        embedding, head = nn.Embedding(vocabulary, dim), nn.Linear(dim, vocabulary)
        return nn.ModuleList([embedding, *layers, head])


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("mha", "12"),
        ("gqa", "11.2"),
        ("mqa", "11"),
        ("sqa", "10.7"),
        ("ssqa", "10.9"),
        ("xsqa", "10.4"),
        ("xsmqa", "10.2"),
    ],
)
def test_whole_dense_models_have_the_published_sizes(name: str, millions: str) -> None:
    """S4: all seven, to the three digits in which they are published."""
    found = model(name, dim=256, heads=16, depth=8, vocabulary=10_000, ff=dense_ff)
    assert millions_of(found) == millions


@pytest.mark.parametrize(
    ("name", "millions"),
    [("gqa", "8.67"), ("mqa", "8.64"), ("sqa", "8.57"), ("ssqa", "8.62"), ("xsqa", "8.52")],
)
def test_whole_mixture_of_experts_models_have_the_published_sizes(name: str, millions: str) -> None:
    found = model(name, dim=128, heads=8, depth=6, vocabulary=5_000, ff=moe_ff)
    assert millions_of(found) == millions
