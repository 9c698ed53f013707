"""Factored blocks: exact where the rank allows it, the best approximation elsewhere."""

from __future__ import annotations

import pytest
import torch

from nas.genome.mechanisms import MECHANISMS
from nas.surgery import factor, merge
from tests.genomes import build
from tests.surgery.helpers import DIM, DOT, SOFTMAX, WIDTH, assert_same_blocks, built


@pytest.mark.parametrize(
    ("name", "what", "qkv_bias"),
    [("mha", "both", True), ("ssqa", "patterns", False), ("xsqa", "messages", True)],
)
def test_factoring_undoes_merging(name: str, what: str, qkv_bias: bool) -> None:
    """Equal outputs, and the genome from before the merge."""
    block = built(MECHANISMS[name].genome, qkv_bias=qkv_bias)
    restored = factor(merge(block, what), WIDTH)
    assert restored.genome == block.genome
    assert_same_blocks(block, restored)


@pytest.mark.parametrize("name", ["gqa", "rsqa", "champion_control"])
def test_factoring_gives_each_head_its_own_keys_and_values(name: str) -> None:
    block = built(MECHANISMS[name].genome, qkv_bias=True)
    assert_same_blocks(block, factor(merge(block), WIDTH))


@pytest.mark.parametrize(
    ("stream", "rank", "kv_heads"), [("wq", 2, "all"), ("wq", 6, "1/2"), ("wv", WIDTH, "1/2")]
)
def test_factoring_error_equals_the_omitted_singular_values(
    stream: str, rank: int, kv_heads: str
) -> None:
    """Eckart and Young: the norm of a head's residual is the norm of its omitted values."""
    forms = {"wq": {"has_wk": False, "raw": "shared"}, "wv": {"has_wo": False, "merge": "sum"}}
    block = built(build(DOT, *SOFTMAX, **forms[stream], kv_heads=kv_heads))
    what = "patterns" if stream == "wq" else "messages"
    again = merge(factor(block, rank), what)
    whole, found = (one.get_submodule(stream).weight.view(-1, DIM, DIM) for one in (block, again))
    if len(found) > len(whole):
        whole = whole.repeat_interleave(len(found) // len(whole), dim=0)
    left_out = torch.linalg.svdvals(whole)[:, rank:]
    torch.testing.assert_close((found - whole).flatten(1).norm(dim=1), left_out.norm(dim=1))


def test_factoring_at_the_rank_of_the_patterns_is_exact() -> None:
    """Queries of half the width, merged and factored again, keep their width and scale."""
    found = build(DOT, *SOFTMAX, qk_dim="1/2")
    block = built(found, qkv_bias=True)
    restored = factor(merge(block), WIDTH // 2)
    assert restored.genome == block.genome
    assert_same_blocks(block, restored)
    assert_same_blocks(block, factor(merge(block), WIDTH))


def test_factoring_keeps_the_value_bias_if_rows_do_not_sum_to_one() -> None:
    found = build(DOT, ("sigmoid", [0]), ("weighted_sum", [1, "v"]))
    block = built(found, qkv_bias=True)
    with torch.no_grad():
        block.wo.bias.zero_()
        block.wk.bias.zero_()
    restored = factor(merge(block), WIDTH)
    assert not restored.wo.bias.any()
    assert_same_blocks(block, restored)
