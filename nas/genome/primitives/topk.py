"""The largest scores of each row: as a filter of scores, and combined with softmax."""

from __future__ import annotations

import torch
from torch import nn

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.domains import Integer
from nas.genome.primitives.factors import non_negative, non_positive_like_first
from nas.genome.primitives.masks import hide
from nas.genome.primitives.shapes import Mask, Scores
from nas.genome.primitives.softmax import masked_softmax


def keep_largest(scores: Scores, mask: Mask, count: int) -> Scores:
    """The scores, with -inf below the ``count``-th largest visible one of the row; ties stay."""
    hidden = hide(scores, mask)
    ordered = hidden.detach().sort(dim=-1, descending=True).values
    rank = torch.arange(scores.shape[-1], device=scores.device)
    least = ordered.masked_fill(rank >= count, torch.inf).amin(dim=-1, keepdim=True)
    return hidden.masked_fill(hidden < least, -torch.inf)


@primitive(
    "topk_filter",
    "scores: scores[h] -> scores[h]",
    role=Role.ADJUST,
    notation="top_{k}({scores})",
    source="Evolving Attention, section 2.1 (k = 10)",
    sign=non_positive_like_first,
    parameters={"k": Integer(default=10, low=1, high=65536)},
)
class TopkFilter(nn.Module):
    """Excludes all but the k largest visible scores of each row.

    out_ij = scores_ij where at least the k-th largest of row i, else -inf
    """

    is_filter = True

    def __init__(self, *, k: int = 10) -> None:
        super().__init__()
        self.k = k

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return keep_largest(scores, mask, self.k)


@primitive(
    "topk_softmax",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="softmax_top{k}({scores})",
    source="Gupta et al. 2021 (Memory-efficient Transformers via Top-k Attention), section 2",
    sign=non_negative,
    parameters={"k": Integer(default=10, low=1, high=65536)},
)
class TopkSoftmax(nn.Module):
    """Softmax over the k largest visible scores of each row.

    weights_ij = exp(scores_ij) / sum over the k largest; equal to softmax after topk_filter
    """

    def __init__(self, filtered: bool = False, *, k: int = 10) -> None:
        super().__init__()
        self.filtered, self.k = filtered, k

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return masked_softmax(keep_largest(scores, mask, self.k), mask, filtered=True)
