"""What masks say, for every shape in which they come."""

from __future__ import annotations

import pytest
import torch

from nas.genome.primitives.normalisers import masked_softmax
from nas.genome.primitives.tensors import count_visible, drop_padding, hide

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("mask", [FULL, FULL[:, :1, :1], FULL[0, 0], FULL[..., :1]])
def test_what_is_added_hides_whatever_the_scores_are(
    mask: torch.Tensor, dtype: torch.dtype
) -> None:
    """Seen keys at the lowest number there is, hidden ones near the highest."""
    extreme = torch.finfo(dtype)
    seen = mask.expand(SCORES.shape)
    scores = torch.full(SCORES.shape, extreme.min, dtype=dtype)
    scores = scores.masked_fill(~seen, extreme.max / 2).requires_grad_()
    weights = masked_softmax(scores, mask, False)
    assert torch.equal(weights > 0, seen)
    assert torch.equal(weights.sum(-1).round(), seen.any(-1).to(dtype))
    weights.square().sum().backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
    assert not scores.grad[~seen].any()


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
