"""Patterns and messages as mechanisms: what they compute (section 3)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nas.compiler import build_attention
from nas.genome.mechanisms import MECHANISMS

FORMS = ("patterns", "messages", "patterns_and_messages")


def heads_of(block: torch.nn.Module, name: str, x: Tensor, heads: int) -> Tensor:
    return block.get_submodule(name)(x).unflatten(-1, (heads, -1)).transpose(1, 2)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("heads", [1, 4])
def test_free_matrices_compute_the_formula(name: str, heads: int) -> None:
    """Each head's scores and what it aggregates, by einsum; the scale is sqrt(d_h)."""
    torch.manual_seed(0)
    dim, length = 24, 7
    block = build_attention(MECHANISMS[name].genome, dim, heads).double()
    x = torch.randn(2, length, dim, dtype=torch.float64)
    keys = x.unsqueeze(1) if name != "messages" else heads_of(block, "wk", x, heads)
    queries, values = (heads_of(block, stream, x, heads) for stream in ("wq", "wv"))
    scores = queries @ keys.transpose(2, 3) / (dim // heads) ** 0.5
    out = torch.einsum("bhqk,bhkw->bqhw", scores.softmax(dim=-1), values)
    expected = block.wo(out.flatten(2)) if name == "patterns" else out.sum(dim=2)
    torch.testing.assert_close(block(x), expected, rtol=0.0, atol=1e-12)
