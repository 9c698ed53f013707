"""Scaled dot-product scores."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from nas.primitives.base import Params, Role, Sizes, primitive


def _macs(sizes: Sizes, params: Params) -> int:
    return sizes.heads * sizes.pairs * sizes.width


@primitive(
    "scaled_dot_product",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="({query}·{key}ᵀ)/√d",
    source="Vaswani et al. 2017, eq. 1",
    macs=_macs,
)
class ScaledDotProduct(nn.Module):
    """Dot products of queries and keys over the square root of the head's width.

    scores_ij = q_i · k_j / sqrt(r), r the operands' width; for patterns, which hold whole tokens,
    the width of the head that was merged into them (Patterns and Messages, section 4).
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.scale = rank**-0.5

    def forward(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> Float[Tensor, "b h q k"]:
        return query @ key.transpose(-2, -1) * self.scale
