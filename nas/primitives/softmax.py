"""Softmax over the visible keys."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nas.primitives.base import Role, primitive
from nas.primitives.masks import hide


def masked_softmax(
    scores: Float[Tensor, "b h q k"], mask: Bool[Tensor, "..."] | None, filtered: bool
) -> Float[Tensor, "b h q k"]:
    """Softmax over the visible keys; zeros in a row where mask and filters leave none.

    Args:
        filtered: scores may hold -inf; without such scores softmax costs a third.
    """
    if filtered or (mask is not None and scores.dtype == torch.float16):
        # Two filters can exclude every key of a row; its softmax would be NaN.
        scores = hide(scores, mask)
        empty = scores.detach().amax(dim=-1, keepdim=True) == -torch.inf
        weights = torch.softmax(scores.masked_fill(empty, 0.0), dim=-1)
        return weights * (~empty).to(scores.dtype)
    if mask is None:
        return torch.softmax(scores, dim=-1)
    # Rows without visible keys stay as they are, free of NaN.
    seen = mask.any(dim=-1, keepdim=True)
    return torch.softmax(hide(scores, mask | ~seen), dim=-1) * seen.to(scores.dtype)


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

    def __init__(self, filtered: bool = False) -> None:
        super().__init__()
        self.filtered = filtered

    def forward(
        self, scores: Float[Tensor, "b h q k"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b h q k"]:
        return masked_softmax(scores, mask, self.filtered)
