"""The Sparse Query Attention family against plain attention and its formulas.

Checks S1 (with torch's own attention as the reference) to S5 and S8 to S10; windows and global
tokens (S6, S7) are in tests/compiler/kernels/test_windows.py.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.compiler import build_attention
from nas.genome import Genome
from nas.genome.mechanisms import MECHANISMS
from tests.tensors import check_same, count, draw, merged, streams, with_gradients

# Query heads, and key and value heads, of 16 and of 8 (tables 1 and 2 of the paper).
FAMILY = {
    "mha": {16: (16, 16), 8: (8, 8)},
    "gqa": {16: (16, 4), 8: (8, 2)},
    "mqa": {16: (16, 1), 8: (8, 1)},
    "sqa": {16: (8, 4), 8: (4, 2)},
    "ssqa": {16: (8, 8), 8: (4, 4)},
    "xsqa": {16: (4, 4), 8: (2, 2)},
    "xsmqa": {16: (4, 1), 8: (2, 1)},
    "lsqa": {16: (12, 4), 8: (6, 2)},
    "rsqa": {16: (4, 8), 8: (2, 4)},
}
REPEATED = ("gqa", "sqa", "lsqa")  # more than one key head, each read by several query heads
WIDTH = 4


def block_of(genome: Genome, heads: int) -> nn.Module:
    """In float64, with weights large enough that no score map is nearly uniform."""
    torch.manual_seed(0)
    block = build_attention(genome, heads * WIDTH, heads).double()
    with torch.no_grad():
        for weight in block.parameters():
            weight.copy_(torch.randn_like(weight) * weight.shape[-1] ** -0.5)
    return block


def tokens(heads: int) -> Tensor:
    return draw(2, 7, heads * WIDTH).requires_grad_()


def check_equal(found: Tensor, expected: Tensor, x: Tensor) -> None:
    """Equal values, and equal gradients of the input."""
    check_same(*(with_gradients(out, [x]) for out in (found, expected)), tolerance=1e-10)


@pytest.mark.parametrize("name", [name for name in FAMILY if name != "rsqa"])
def test_heads_are_repeated_as_torchs_grouped_attention_does(name: str) -> None:
    """S2, S10: enable_gqa and repeat_interleave; tiling is another mechanism."""
    heads = 8
    block, x = block_of(MECHANISMS[name].genome, heads), tokens(heads)
    q, k, v = streams(block, x)
    assert (q.shape[1], k.shape[1]) == FAMILY[name][heads]
    times = q.shape[1] // k.shape[1]
    found = block(x)
    grouped = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    check_equal(found, merged(block, grouped), x)
    repeated = (t.repeat_interleave(times, dim=1) for t in (k, v))
    check_equal(found, merged(block, F.scaled_dot_product_attention(q, *repeated)), x)
    if name in REPEATED:
        tiled = F.scaled_dot_product_attention(q, *(t.repeat(1, times, 1, 1) for t in (k, v)))
        assert (merged(block, tiled) - found).abs().max() > 0.1


def test_reverse_repeats_queries_and_keeps_the_width_of_the_keys() -> None:
    """S9: torch's enable_gqa cannot say it."""
    heads = 8
    block, x = block_of(MECHANISMS["rsqa"].genome, heads), tokens(heads)
    q, k, v = streams(block, x)
    assert block.wo.in_features == k.shape[1] * WIDTH == heads * WIDTH // 2
    expected = F.scaled_dot_product_attention(q.repeat_interleave(2, dim=1), k, v)
    check_equal(block(x), merged(block, expected), x)
    tiled = F.scaled_dot_product_attention(q.repeat(1, 2, 1, 1), k, v)
    assert (merged(block, tiled) - block(x)).abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("mha", 262_400),
        ("gqa", 164_096),
        ("mqa", 139_520),
        ("ssqa", 131_328),
        ("sqa", 98_560),
        ("xsqa", 65_792),
        ("xsmqa", 41_216),
    ],
)
def test_a_layer_has_the_parameters_of_the_authors_code(name: str, params: int) -> None:
    """S3: at d = 256 and H = 16; q, k, v without a bias, out with one."""
    block = build_attention(MECHANISMS[name].genome, 256, 16)
    q_heads, kv_heads = FAMILY[name][16]
    assert [w.bias is None for w in (block.wq, block.wk, block.wv, block.wo)] == [1, 1, 1, 0]
    assert block.wq.weight.shape == (q_heads * 16, 256)
    assert block.wk.weight.shape == block.wv.weight.shape == (kv_heads * 16, 256)
    assert block.wo.weight.shape == (256, q_heads * 16)
    assert count(block) == 256 * 16 * (2 * q_heads + 2 * kv_heads) + 256 == params
