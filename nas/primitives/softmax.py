"""Softmax over the visible keys."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nas.primitives.base import Role, primitive


@primitive(
    "softmax",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="softmax({scores})",
    source="Vaswani et al. 2017, eq. 1",
)
class Softmax(nn.Module):
    """Softmax over the visible keys; a row that sees no key gives zeros.

    weights_ij = exp(scores_ij) / sum_k exp(scores_ik)
    """

    def forward(
        self, scores: Float[Tensor, "b h q k"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b h q k"]:
        if mask is None:
            return torch.softmax(scores, dim=-1)
        # The lowest finite number, not -inf: a row without visible keys stays free of NaN.
        hidden = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return torch.softmax(hidden, dim=-1).masked_fill(~mask, 0.0)
