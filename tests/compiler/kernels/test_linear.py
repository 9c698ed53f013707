"""Means and linear sums against weights written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nas.compiler.kernels.attention import linear_attention, sums_so_far, visible_mean
from tests.tensors import check_same, mask_of, with_gradients

N = 19


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def seen_of(kind: str, is_causal: bool) -> tuple[Tensor | None, Tensor]:
    """The mask, and the same with causality, written out."""
    mask = mask_of(kind, N)
    whole = torch.ones(2, 1, N, N, dtype=torch.bool) if mask is None else mask.expand(2, 1, N, N)
    return mask, whole.tril() if is_causal else whole


def check_equal(ours: Tensor, theirs: Tensor, *leaves: Tensor) -> None:
    check_same(with_gradients(ours, leaves), with_gradients(theirs, leaves))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", ["none", "padding", "rows"])
def test_mean_of_visible_values(kind: str, is_causal: bool) -> None:
    values = drawn(2, 3, N, 4)
    mask, seen = seen_of(kind, is_causal)
    weights = seen / seen.sum(dim=-1, keepdim=True).clamp(min=1).double()
    ours = visible_mean(values, mask, is_causal)
    check_equal(ours, weights @ values, values)


def test_a_mean_in_16_bits_is_summed_in_32() -> None:
    values = torch.ones(1, 1, 3_000, 2, dtype=torch.bfloat16)
    for is_causal in (False, True):
        assert torch.equal(visible_mean(values, None, is_causal), values)


@pytest.mark.parametrize("width", [3, 3 * N])
@pytest.mark.parametrize("groups", [(4, 4), (1, 4), (4, 2)])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", ["none", "padding", "rows"])
def test_linear_attention_is_scores_times_values(
    kind: str, is_causal: bool, groups: tuple[int, int], width: int
) -> None:
    query, key = drawn(2, 4, N, width), drawn(2, groups[0], N, width)
    values = drawn(2, groups[1], N, 5)
    mask, seen = seen_of(kind, is_causal)
    whole, several = (x.repeat_interleave(4 // x.shape[1], dim=1) for x in (key, values))
    scores = 0.7 * query @ whole.mT
    count = seen.sum(dim=-1, keepdim=True).clamp(min=1)
    expected = (scores.masked_fill(~seen, 0.0) @ several) / count
    ours = linear_attention(query, key, values, mask, 0.7, is_causal)
    check_equal(ours, expected, query, key, values)


@pytest.mark.parametrize("n", [1, N, 128, 300])
def test_sums_so_far_of_any_length(n: int) -> None:
    query, key, values = drawn(2, 4, n, 3), drawn(2, 2, n, 3), drawn(2, 1, n, 5)
    whole, several = (x.repeat_interleave(4 // x.shape[1], dim=1) for x in (key, values))
    expected = (query @ whole.mT).tril() @ several
    check_equal(sums_so_far(query, key, values), expected, query, key, values)


def test_later_tokens_change_no_bit_of_earlier_sums() -> None:
    """Not even by rounding: large tokens come after small ones."""
    query, key, values = torch.randn(3, 1, 1, 200, 4).unbind()
    before = sums_so_far(query, key, values)
    key[:, :, -1] *= 1e8
    assert torch.equal(sums_so_far(query, key, values)[:, :, :-1], before[:, :, :-1])
