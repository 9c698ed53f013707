"""Patterns and messages as mechanisms: what they compute (section 3)."""

from __future__ import annotations

import pytest
import torch

from nas.compiler import build_attention
from nas.genome.mechanisms import MECHANISMS
from tests.tensors import split

FORMS = ("patterns", "messages", "patterns_and_messages")


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("heads", [1, 4])
def test_free_matrices_compute_the_formula(name: str, heads: int) -> None:
    """Each head's scores and what it aggregates, by einsum; the scale is sqrt(d_h)."""
    torch.manual_seed(0)
    dim, length = 24, 7
    block = build_attention(MECHANISMS[name].genome, dim, heads).double()
    x = torch.randn(2, length, dim, dtype=torch.float64)
    keys = x.unsqueeze(1) if name != "messages" else split(block.wk(x), dim // heads)
    queries, values = (split(y, y.shape[-1] // heads) for y in (block.wq(x), block.wv(x)))
    scores = queries @ keys.transpose(2, 3) / (dim // heads) ** 0.5
    out = torch.einsum("bhqk,bhkw->bqhw", scores.softmax(dim=-1), values)
    expected = block.wo(out.flatten(2)) if name == "patterns" else out.sum(dim=2)
    torch.testing.assert_close(block(x), expected, rtol=0.0, atol=1e-12)
