"""Merged blocks equal the blocks they come from, or are refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from nas.common.errors import GenomeError
from nas.genome import PLACEMENTS, Visibility
from nas.genome.mechanisms import MECHANISMS
from nas.surgery import merge
from tests.genomes import build
from tests.samples import samples
from tests.surgery.helpers import (
    DIM,
    DOT,
    HEADS,
    LENGTH,
    SOFTMAX,
    WIDTH,
    assert_same_blocks,
    built,
    tokens,
)

FORMS = ("patterns", "messages", "both")


def test_merged_mha_equals_the_formula_of_the_paper() -> None:
    """Section 3: sum_i softmax(x W^P_i xᵀ / sqrt(d_h)) x W^M_i + b_O."""
    block = built(MECHANISMS["mha"].genome)
    x, out = tokens(), block.wo.bias.expand(2, LENGTH, DIM).clone()
    for i in range(HEADS):
        rows = slice(i * WIDTH, (i + 1) * WIDTH)
        patterns = block.wq.weight[rows].T @ block.wk.weight[rows]
        messages = block.wv.weight[rows].T @ block.wo.weight[:, rows].T
        scores = x @ patterns @ x.transpose(1, 2) / WIDTH**0.5
        out = out + scores.softmax(dim=-1) @ x @ messages
    merged = merge(block)
    torch.testing.assert_close(merged(x), out, rtol=0.0, atol=1e-12)
    assert merged.genome == MECHANISMS["patterns_and_messages"].genome
    for what in ("patterns", "messages"):
        assert merge(block, what).genome == MECHANISMS[what].genome
    assert_same_blocks(block, merged)


@pytest.mark.parametrize(
    ("name", "what"),
    [("mha", "both"), ("gqa", "patterns"), ("sqa", "messages"), ("rsqa", "both"), ("lsqa", "both")],
)
def test_merged_forms_equal_the_block(name: str, what: str) -> None:
    """For all head counts, with biases."""
    block = built(MECHANISMS[name].genome, qkv_bias=True)
    assert_same_blocks(block, merge(block, what))


@pytest.mark.parametrize(
    ("flag", "raw", "what"),
    [
        ("has_wq", "slice", "patterns"),
        ("has_wk", "shared", "both"),
        ("has_wv", "shared", "messages"),
        ("has_wo", "slice", "both"),
    ],
)
def test_streams_without_projection_merge_too(flag: str, raw: str, what: str) -> None:
    block = built(build(DOT, *SOFTMAX, **{flag: False}, raw=raw))
    assert_same_blocks(block, merge(block, what))


def test_merging_keeps_window_and_placement() -> None:
    found = build(DOT, *SOFTMAX, placement="first")
    block = built(replace(found, visibility=Visibility(window=2, global_tokens=1)))
    merged = merge(block)
    assert (merged.genome.visibility.window, merged.genome.placement) == (2, PLACEMENTS["first"])
    assert_same_blocks(block, merged)


def test_random_genomes_merge_exactly_or_are_refused() -> None:
    merged = 0
    for number, found in enumerate(samples("attention_v2", 30)):
        block = built(found, qkv_bias=bool(number % 2))
        if not any(True for _ in block.parameters()):
            continue  # without weights it has no precision to keep
        for what in FORMS:
            try:
                other = merge(block, what)
            except GenomeError:
                continue
            merged += 1
            assert_same_blocks(block, other)
    assert merged >= 3


CAPPED = (DOT, ("softcap", [0], {"cap": 2.0}), ("softmax", [1]), ("weighted_sum", [2, "v"]))


@pytest.mark.parametrize(
    ("nodes", "what", "bias", "words"),
    [
        ((DOT, ("sigmoid", [0]), SOFTMAX[1]), "patterns", "wk", "the keys have a bias"),
        (CAPPED, "patterns", "wk", "the keys have a bias"),
        ((DOT, ("sigmoid", [0]), SOFTMAX[1]), "messages", "wo", "the output has a bias"),
        ((DOT, ("softmax_one", [0]), SOFTMAX[1]), "messages", "wo", "the output has a bias"),
        ((DOT, ("relu_squared", [0]), SOFTMAX[1]), "messages", "wo", "the output has a bias"),
    ],
)
def test_bias_that_changes_the_weights_is_refused(
    nodes: Any, what: str, bias: str, words: str
) -> None:
    block = built(build(*nodes), qkv_bias=True)
    with pytest.raises(GenomeError, match=f"be merged: {words}"):
        merge(block, what)
    with torch.no_grad():
        block.get_submodule(bias).bias.zero_()
    assert_same_blocks(block, merge(block, what))


def test_merged_row_without_visible_keys_gives_zero() -> None:
    block = built(MECHANISMS["mha"].genome)
    blind = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    blind[2] = False
    before, after = (m(tokens(), attn_mask=blind)[:, 2] for m in (block, merge(block)))
    torch.testing.assert_close(before, block.wo.bias.expand(2, DIM))
    assert not after.any()


def test_values_that_scores_read_merge_after_the_patterns() -> None:
    block = built(MECHANISMS["champion_control"].genome)
    with pytest.raises(GenomeError, match="v is read by scaled_dot_product_0 too"):
        merge(block, "messages")
    assert_same_blocks(block, merge(block))
