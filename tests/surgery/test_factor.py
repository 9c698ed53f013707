"""Factored blocks: exact where the rank allows it, the best approximation elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from nas.common.errors import GenomeError
from nas.genome.mechanisms import MECHANISMS
from nas.surgery import factor, merge
from tests.surgery.helpers import DIM, DOT, SOFTMAX, WIDTH, assert_same_blocks, built, tokens

if TYPE_CHECKING:
    from tests.genomes import Build


@pytest.mark.parametrize("qkv_bias", [False, True])
@pytest.mark.parametrize("what", ["patterns", "messages", "both"])
@pytest.mark.parametrize("name", ["mha", "ssqa", "xsqa"])
def test_factoring_undoes_merging(name: str, what: str, qkv_bias: bool) -> None:
    """Equal outputs, and the genome from before the merge."""
    block = built(MECHANISMS[name].genome, qkv_bias=qkv_bias)
    restored = factor(merge(block, what), WIDTH)
    assert restored.genome == block.genome
    assert_same_blocks(block, restored)


@pytest.mark.parametrize("name", ["gqa", "mqa", "sqa", "rsqa"])
def test_factoring_recovers_shared_keys(name: str) -> None:
    block = built(MECHANISMS[name].genome, qkv_bias=True)
    restored = factor(merge(block, "patterns"), WIDTH)
    assert restored.wk.weight.shape == block.wk.weight.shape
    assert_same_blocks(block, restored)


def test_factoring_recovers_shared_keys_in_float32() -> None:
    block = built(MECHANISMS["gqa"].genome).float()
    restored = factor(merge(block, "patterns"), WIDTH)
    assert restored.genome == block.genome
    torch.testing.assert_close(restored(tokens().float()), block(tokens().float()))


@pytest.mark.parametrize("name", ["gqa", "rsqa", "champion_control"])
def test_factoring_gives_each_head_its_own_values(name: str) -> None:
    block = built(MECHANISMS[name].genome, qkv_bias=True)
    assert_same_blocks(block, factor(merge(block), WIDTH))


def test_factoring_patterns_keeps_raw_values(genome: Build) -> None:
    block = built(genome(DOT, *SOFTMAX, has_wv=False, raw="shared"))
    restored = factor(merge(block, "patterns"), WIDTH)
    assert restored.genome == block.genome
    assert_same_blocks(block, restored)


def test_factoring_repeats_keys_for_more_value_heads(genome: Build) -> None:
    found = genome(DOT, *SOFTMAX, has_wk=False, raw="shared", q_heads="1/4", kv_heads="1/2")
    block = merge(built(MECHANISMS["xsqa"].genome), "patterns")
    wide = built(found)
    with torch.no_grad():
        wide.wq.weight.copy_(block.wq.weight)
    assert_same_blocks(wide, factor(wide, WIDTH))


def test_factoring_does_not_share_separate_keys(genome: Build) -> None:
    """Heads read slices of the token as keys, but share their values."""
    found = genome(DOT, *SOFTMAX, has_wk=False, kv_heads="1/2")
    block = built(found)
    merged = merge(block, "patterns")
    assert merged.genome.projections.kv_heads == "1/2"
    assert_same_blocks(block, factor(merged, WIDTH))


@pytest.mark.parametrize("kv_heads", ["all", "1/2"])
@pytest.mark.parametrize(("stream", "rank"), [("wq", 2), ("wq", 4), ("wq", 6), ("wv", WIDTH)])
def test_factoring_error_equals_the_omitted_singular_values(
    genome: Build, stream: str, rank: int, kv_heads: str
) -> None:
    """Eckart and Young: the norm of a head's residual is the norm of its omitted values."""
    forms = {"wq": {"has_wk": False, "raw": "shared"}, "wv": {"has_wo": False, "merge": "sum"}}
    block = built(genome(DOT, *SOFTMAX, **forms[stream], kv_heads=kv_heads))
    what = "patterns" if stream == "wq" else "messages"
    again = merge(factor(block, rank), what)
    whole, found = (one.get_submodule(stream).weight.view(-1, DIM, DIM) for one in (block, again))
    if len(found) > len(whole):
        whole = whole.repeat_interleave(len(found) // len(whole), dim=0)
    left_out = torch.linalg.svdvals(whole)[:, rank:]
    torch.testing.assert_close((found - whole).flatten(1).norm(dim=1), left_out.norm(dim=1))


def test_factoring_one_head_at_full_width_is_exact() -> None:
    block = built(MECHANISMS["patterns_and_messages"].genome, heads=1, qkv_bias=True)
    assert_same_blocks(block, factor(block, DIM))


def test_factoring_at_the_rank_of_the_patterns_is_exact(genome: Build) -> None:
    """Queries of half the width, merged and factored again, keep their width and scale."""
    found = genome(DOT, *SOFTMAX, qk_dim="1/2")
    block = built(found, qkv_bias=True)
    restored = factor(merge(block), WIDTH // 2)
    assert restored.genome == block.genome
    assert_same_blocks(block, restored)
    assert_same_blocks(block, factor(merge(block), WIDTH))


def test_factoring_keeps_the_value_bias_if_rows_do_not_sum_to_one(genome: Build) -> None:
    found = genome(DOT, ("sigmoid", [0]), ("weighted_sum", [1, "v"]))
    block = built(found, qkv_bias=True)
    with torch.no_grad():
        block.wo.bias.zero_()
        block.wk.bias.zero_()
    restored = factor(merge(block), WIDTH)
    assert not restored.wo.bias.any()
    assert_same_blocks(block, restored)


def test_factoring_keeps_weights_of_operations(genome: Build) -> None:
    found = genome(
        DOT, ("temperature", [0]), ("softmax", [1]), ("layer_norm", "v"), ("weighted_sum", [2, 3])
    )
    block = built(found, qkv_bias=True)
    assert_same_blocks(block, factor(merge(block, "patterns"), WIDTH))


# Refusals


@pytest.mark.parametrize(
    ("what", "rank", "words"),
    [
        ("both", 5, r"factor: found rank 5; expected 2 or 4 or 6 or 8\."),
        ("messages", 4, r"rank 4; expected 8,.*width of values"),
    ],
)
def test_factoring_at_a_rank_without_a_label_is_refused(what: str, rank: int, words: str) -> None:
    with pytest.raises(GenomeError, match=words):
        factor(merge(built(MECHANISMS["mha"].genome), what), rank)


@pytest.mark.parametrize("name", ["mha", "champion_2025"])
def test_factoring_an_unmerged_block_is_refused(name: str) -> None:
    with pytest.raises(GenomeError, match=r"neither patterns .* nor messages"):
        factor(built(MECHANISMS[name].genome), WIDTH)


def test_factoring_a_stream_with_another_reader_is_refused(genome: Build) -> None:
    found = genome(DOT, ("softmax", [0]), ("weighted_sum", [1, "q"]), has_wk=False, raw="shared")
    with pytest.raises(GenomeError, match="factor: q is read by weighted_sum_2 too"):
        factor(built(found), WIDTH)
