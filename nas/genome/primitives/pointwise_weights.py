"""Elementwise normalisers: sigmoid, squared ReLU, and scores divided by the number of keys."""

from __future__ import annotations

import torch
from torch import nn

from nas.genome.primitives.base import Params, Role, primitive
from nas.genome.primitives.domains import Flag
from nas.genome.primitives.factors import Weights, non_negative, rectified, sign_of_first
from nas.genome.primitives.masks import count_visible, hide
from nas.genome.primitives.shapes import Mask, Scores


def _sigmoid_weights(params: Params) -> Weights:
    return Weights.SIGMOID_OVER_LENGTH if params["length_bias"] else Weights.SIGMOID


@primitive(
    "sigmoid",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="sigmoid({scores})",
    source="Evolving Attention, section 2.1; length bias: Ramapuram et al. 2024, section 3",
    parameters={"length_bias": Flag(default=False)},
    weights=_sigmoid_weights,
    sign=non_negative,
)
class Sigmoid(nn.Module):
    """A weight of its own for every visible key; rows do not sum to 1.

    weights_ij = sigmoid(scores_ij + b), b = 0 as published: row sums then grow with the number
    n of visible keys. With ``length_bias`` b = -log n, which keeps them near 1.
    """

    def __init__(self, *, length_bias: bool = False) -> None:
        super().__init__()
        self.length_bias = length_bias

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        hidden = hide(scores, mask)
        if self.length_bias:
            hidden = hidden - count_visible(scores, mask).log()
        return torch.sigmoid(hidden).to(scores.dtype)


@primitive(
    "relu_squared",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="ReLU²({scores})/n",
    source="Hua et al. 2022 (FLASH), section 3.2; 1/n: Wortsman et al. 2023, section 3",
    sign=rectified,
)
class ReluSquared(nn.Module):
    """Squares of the positive scores over the number n of visible keys.

    weights_ij = max(scores_ij, 0)^2 / n
    """

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        positive = hide(scores, mask).relu()
        # Divided before it is squared: a square can overflow 16 bits.
        return (positive / count_visible(scores, mask).sqrt()).square().to(scores.dtype)


@primitive(
    "softmax_free",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="{scores}/n",
    source="Cao 2021 (Choose a Transformer: Fourier or Galerkin), eq. 5",
    weights=lambda params: Weights.LINEAR,
    sign=sign_of_first,
)
class SoftmaxFree(nn.Module):
    """The visible scores over their number: weights of both signs that sum to the mean score.

    weights_ij = scores_ij / n, n the number of keys that row i sees; an excluded key has weight 0.
    Of dot products it is linear attention: (Q K^T) V / n = Q (K^T V) / n. The source normalises Q
    and K first (layer norm); here norms are the graph's own affair.
    """

    def __init__(self, filtered: bool = False) -> None:
        super().__init__()
        self.filtered = filtered

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        weights = scores / count_visible(scores, mask).to(scores.dtype)
        if self.filtered:
            weights = weights.masked_fill(scores == -torch.inf, 0.0)
        return weights if mask is None else weights.masked_fill(~mask, 0.0)
