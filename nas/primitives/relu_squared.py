"""Squared ReLU of the visible scores."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from nas.primitives.base import Role, primitive
from nas.primitives.masks import count_visible, hide


@primitive(
    "relu_squared",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="ReLU²({scores})/n",
    source="Hua et al. 2022 (FLASH), section 3.2; 1/n: Wortsman et al. 2023, section 3",
)
class ReluSquared(nn.Module):
    """Squares of the positive scores over the number n of visible keys.

    weights_ij = max(scores_ij, 0)^2 / n
    """

    def forward(
        self, scores: Float[Tensor, "b h q k"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b h q k"]:
        positive = hide(scores, mask).relu()
        # Divided before it is squared: a square can overflow 16 bits.
        return (positive / count_visible(scores, mask).sqrt()).square().to(scores.dtype)
