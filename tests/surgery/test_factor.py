"""Factored blocks: exact where the rank allows it, the best approximation elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from nas.common.errors import GenomeError
from nas.genome.mechanisms import MECHANISMS
from nas.surgery import factor, merge
from tests.surgery.blocks import DIM, DOT, SOFTMAX, WIDTH, assert_same, built, tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from nas.genome import Genome

    Build = Callable[..., Genome]


@pytest.mark.parametrize("qkv_bias", [False, True])
@pytest.mark.parametrize("what", ["patterns", "messages", "both"])
@pytest.mark.parametrize("name", ["mha", "ssqa", "xsqa"])
def test_factoring_undoes_merging(name: str, what: str, qkv_bias: bool) -> None:
    """P7: same outputs, and the genome that was merged."""
    block = built(MECHANISMS[name].genome, qkv_bias=qkv_bias)
    restored = factor(merge(block, what), WIDTH)
    assert restored.genome == block.genome
    assert_same(block, restored)


@pytest.mark.parametrize("name", ["gqa", "mqa", "sqa", "rsqa"])
def test_keys_shared_by_heads_are_found_again(name: str) -> None:
    block = built(MECHANISMS[name].genome, qkv_bias=True)
    restored = factor(merge(block, "patterns"), WIDTH)
    assert restored.wk.weight.shape == block.wk.weight.shape
    assert_same(block, restored)


def test_shared_keys_are_found_through_the_rounding_of_single_precision() -> None:
    block = built(MECHANISMS["gqa"].genome).float()
    restored = factor(merge(block, "patterns"), WIDTH)
    assert restored.genome == block.genome
    torch.testing.assert_close(restored(tokens().float()), block(tokens().float()))


@pytest.mark.parametrize("name", ["gqa", "rsqa", "champion_control"])
def test_values_that_were_shared_come_back_as_own_ones(name: str) -> None:
    block = built(MECHANISMS[name].genome, qkv_bias=True)
    assert_same(block, factor(merge(block), WIDTH))


def test_values_without_projection_stay_as_they_are(genome: Build) -> None:
    block = built(genome(DOT, *SOFTMAX, has_wv=False, raw="shared"))
    restored = factor(merge(block, "patterns"), WIDTH)
    assert restored.genome == block.genome
    assert_same(block, restored)


def test_more_values_than_patterns_repeat_the_keys(genome: Build) -> None:
    found = genome(DOT, *SOFTMAX, has_wk=False, raw="shared", q_heads="1/4", kv_heads="1/2")
    block = merge(built(MECHANISMS["xsqa"].genome), "patterns")
    wide = built(found)
    with torch.no_grad():
        wide.wq.weight.copy_(block.wq.weight)
    assert_same(wide, factor(wide, WIDTH))


def test_keys_that_were_never_shared_are_not_shared_by_factoring(genome: Build) -> None:
    """Heads read slices of the token as keys, but share their values."""
    found = genome(DOT, *SOFTMAX, has_wk=False, kv_heads="1/2")
    block = built(found)
    merged = merge(block, "patterns")
    assert merged.genome.projections.kv_heads == "1/2"
    assert_same(block, factor(merged, WIDTH))


@pytest.mark.parametrize("kv_heads", ["all", "1/2"])
@pytest.mark.parametrize(("stream", "rank"), [("wq", 2), ("wq", 4), ("wq", 6), ("wv", WIDTH)])
def test_what_is_lost_is_what_the_singular_values_say(
    genome: Build, stream: str, rank: int, kv_heads: str
) -> None:
    """Eckart and Young: the norm of the residual is that of the values left out, head by head."""
    forms = {"wq": {"has_wk": False, "raw": "shared"}, "wv": {"has_wo": False, "merge": "sum"}}
    block = built(genome(DOT, *SOFTMAX, **forms[stream], kv_heads=kv_heads))
    what = "patterns" if stream == "wq" else "messages"
    again = merge(factor(block, rank), what)
    whole, found = (one.get_submodule(stream).weight.view(-1, DIM, DIM) for one in (block, again))
    if len(found) > len(whole):
        whole = whole.repeat_interleave(len(found) // len(whole), dim=0)
    left_out = torch.linalg.svdvals(whole)[:, rank:]
    torch.testing.assert_close((found - whole).flatten(1).norm(dim=1), left_out.norm(dim=1))


def test_one_head_loses_nothing_at_its_full_width() -> None:
    block = built(MECHANISMS["patterns_and_messages"].genome, heads=1, qkv_bias=True)
    assert_same(block, factor(block, DIM))


def test_a_lower_rank_that_the_patterns_have_is_exact(genome: Build) -> None:
    """Queries of half the width, merged and factored again, keep their width and scale."""
    found = genome(DOT, *SOFTMAX, qk_dim="1/2")
    block = built(found, qkv_bias=True)
    restored = factor(merge(block), WIDTH // 2)
    assert restored.genome == block.genome
    assert_same(block, restored)
    assert_same(block, factor(merge(block), WIDTH))


def test_the_bias_of_messages_stays_with_values_where_rows_do_not_sum_to_one(genome: Build) -> None:
    found = genome(DOT, ("sigmoid", [0]), ("weighted_sum", [1, "v"]))
    block = built(found, qkv_bias=True)
    with torch.no_grad():
        block.wo.bias.zero_()
        block.wk.bias.zero_()
    restored = factor(merge(block), WIDTH)
    assert not restored.wo.bias.any()
    assert_same(block, restored)


def test_operations_keep_their_weights(genome: Build) -> None:
    found = genome(
        DOT, ("temperature", [0]), ("softmax", [1]), ("layer_norm", "v"), ("weighted_sum", [2, 3])
    )
    block = built(found, qkv_bias=True)
    assert_same(block, factor(merge(block, "patterns"), WIDTH))


def test_factored_blocks_are_cheaper_and_train() -> None:
    block = built(MECHANISMS["patterns_and_messages"].genome).float()
    small = factor(block, 2)
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in block.parameters())
    small(tokens().float()).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in small.parameters())


# Refusals


@pytest.mark.parametrize(
    ("what", "rank", "words"),
    [
        ("both", 5, r"factor: found rank 5; expected 2 or 4 or 6 or 8\."),
        ("messages", 4, r"rank 4; expected 8,.*width of values"),
    ],
)
def test_a_rank_that_no_genome_can_say(what: str, rank: int, words: str) -> None:
    with pytest.raises(GenomeError, match=words):
        factor(merge(built(MECHANISMS["mha"].genome), what), rank)


@pytest.mark.parametrize("name", ["mha", "champion_2025"])
def test_a_block_that_holds_nothing_merged(name: str) -> None:
    with pytest.raises(GenomeError, match=r"neither patterns .* nor messages"):
        factor(built(MECHANISMS[name].genome), WIDTH)


def test_other_readers_are_named(genome: Build) -> None:
    found = genome(DOT, ("softmax", [0]), ("weighted_sum", [1, "q"]), has_wk=False, raw="shared")
    with pytest.raises(GenomeError, match="factor: q is read by weighted_sum_2 too"):
        factor(built(found), WIDTH)
