"""What masks say, for every shape in which they come."""

from __future__ import annotations

import math

import pytest
import torch

from nas.primitives.masks import below_top, count_visible, drop_padding, hide

SCORES = torch.zeros(2, 3, 4, 5)
FULL = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0)) > 0.4


@pytest.mark.parametrize(
    "mask", [FULL, FULL[:1], FULL[:, :1], FULL[0, 0], FULL[:, :1, :1], FULL[0, 0, 0], FULL[..., :1]]
)
def test_counts_follow_the_broadcast_mask(mask: torch.Tensor) -> None:
    expected = mask.expand(2, 3, 4, 5).sum(-1, keepdim=True).clamp(min=1)
    counted = count_visible(SCORES, mask).expand(2, 3, 4, 1)
    assert torch.equal(counted, expected.float())
    assert torch.equal(torch.isfinite(hide(SCORES, mask)), mask.expand(2, 3, 4, 5))


def test_counts_are_exact_where_16_bits_are_not() -> None:
    wide = torch.zeros(1, 1, 1, 1025, dtype=torch.bfloat16)
    assert count_visible(wide, None).item() == 1025
    assert count_visible(SCORES.double(), None).dtype == torch.float64


def test_below_top_marks_what_cannot_be_in_a_support() -> None:
    row = torch.tensor([5.0, 4.5, 1.0, -math.inf, 9.0]).reshape(1, 1, 1, 5)
    mask = torch.tensor([True, True, True, True, False])
    assert below_top(row, mask).flatten().tolist() == [0.0, -0.5, -2.0, -2.0, -2.0]
    assert below_top(row, torch.zeros(5, dtype=torch.bool)).flatten().tolist() == [-2.0] * 5


def test_padding_is_what_no_query_sees() -> None:
    tokens = torch.ones(2, 3, 5, 4)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    assert torch.equal(drop_padding(tokens, causal), tokens)
    kept = torch.tensor([[True] * 5, [True, True, True, False, False]])
    expected = tokens * kept[:, None, :, None]
    assert torch.equal(drop_padding(tokens, kept[:, None, None, :]), expected)
    assert torch.equal(drop_padding(tokens, causal & kept[:, None, None, :]), expected)
    # The heads of a mask need not be those of the tokens.
    by_head = kept[:, None, None, :].expand(2, 12, 5, 5)
    assert torch.equal(drop_padding(tokens, by_head), expected)


def test_padding_of_other_tokens_is_unknown() -> None:
    queries = torch.ones(2, 3, 7, 4)
    assert drop_padding(queries, torch.zeros(7, 5, dtype=torch.bool)) is queries
