"""Softmax over the visible keys, with and without an additional key of score zero."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.factors import Weights, non_negative
from nas.genome.primitives.masks import hide
from nas.genome.primitives.shapes import Mask, Scores


def masked_softmax(scores: Scores, mask: Mask, filtered: bool) -> Scores:
    """Softmax over the visible keys; zeros in a row where mask and filters leave none."""
    if mask is None and not filtered:
        return torch.softmax(scores, dim=-1)
    scores = hide(scores, mask)
    # The softmax of a row without keys would be NaN.
    empty = scores.detach().amax(dim=-1, keepdim=True) == -torch.inf
    return torch.softmax(scores.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)


@primitive(
    "softmax",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="softmax({scores})",
    source="Vaswani et al. 2017, eq. 1",
    weights=lambda params: Weights.SOFTMAX,
    sign=non_negative,
)
class Softmax(nn.Module):
    """Softmax over the visible keys; a row that sees no key gives zeros.

    weights_ij = exp(scores_ij) / sum_k exp(scores_ik)
    """

    def __init__(self, filtered: bool = False) -> None:
        super().__init__()
        self.filtered = filtered

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return masked_softmax(scores, mask, self.filtered)


@primitive(
    "softmax_one",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="softmax₁({scores})",
    source="Miller 2023, 'Attention Is Off By One'",
    weights=lambda params: Weights.SOFTMAX_ONE,
    sign=non_negative,
)
class SoftmaxOne(nn.Module):
    """Softmax over the visible keys and one silent key whose score and value are zero.

    weights_ij = exp(scores_ij) / (1 + sum_k exp(scores_ik)); rows sum to less than 1
    """

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return torch.softmax(F.pad(hide(scores, mask), (1, 0)), dim=-1)[..., 1:]
