"""Patterns and messages as mechanisms: what they compute, and what they cost (section 3)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nas.compiler import build_attention
from nas.costs import attention_cost
from nas.costs.memory import BYTES_PER_NUMBER
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


@pytest.mark.parametrize(("dim", "heads", "tokens"), [(32, 4, 24), (64, 1, 65), (48, 8, 10)])
def test_the_table_of_costs(dim: int, heads: int, tokens: int) -> None:
    """P8, P9: projections, scores and aggregation, parameters, numbers that decoding keeps."""
    n, d, h = tokens, dim, heads
    table = {
        "mha": (4 * n * d * d, 2 * n * n * d, 4 * d * d + d, 2 * d),
        "patterns": (n * d * d * (h + 2), (h + 1) * n * n * d, (h + 2) * d * d + d, 2 * d),
        "messages": (n * d * d * (2 + h), (1 + h) * n * n * d, (2 + h) * d * d, d + h * d),
        "patterns_and_messages": (2 * h * n * d * d, 2 * h * n * n * d, 2 * h * d * d, d + h * d),
    }
    for name, expected in table.items():
        cost = counted(name, dim, heads, tokens)
        numbers = cost["kv_cache_bytes_per_token"] // BYTES_PER_NUMBER
        found = (
            cost["macs"] - cost["attention_macs"],
            cost["attention_macs"],
            cost["params"],
            numbers,
        )
        # The table leaves out the bias of W_O, d parameters.
        assert found == expected, name


def counted(name: str, dim: int, heads: int, tokens: int) -> dict[str, int]:
    return attention_cost(MECHANISMS[name].genome, dim=dim, heads=heads, tokens=tokens)
