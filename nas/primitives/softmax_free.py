"""Scores themselves as weights: attention without softmax, which is linear in the length."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nas.primitives.base import Role, primitive
from nas.primitives.masks import count_visible


@primitive(
    "softmax_free",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="{scores}/n",
    source="Cao 2021 (Choose a Transformer: Fourier or Galerkin), eq. 5",
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

    def forward(
        self, scores: Float[Tensor, "b h q k"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b h q k"]:
        weights = scores / count_visible(scores, mask).to(scores.dtype)
        if self.filtered:
            weights = weights.masked_fill(scores == -torch.inf, 0.0)
        return weights if mask is None else weights.masked_fill(~mask, 0.0)
