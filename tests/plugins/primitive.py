"""A primitive: scores by squared dot products."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from nas.genome.primitives.base import Role, primitive


@primitive(
    "squared_score",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="({query}·{key}ᵀ)²/d",
    source="an example: where it comes from, with its equation",
)
class SquaredScore(nn.Module):
    """Squared dot products over the width.

    scores_ij = (q_i · k_j)² / r, r the operands' width.
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def forward(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> Float[Tensor, "b h q k"]:
        return (query @ key.transpose(-2, -1)).square() / self.rank
