"""Sparsemax over the visible keys."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from nas.primitives.base import Role, primitive
from nas.primitives.threshold import threshold_weights


@primitive(
    "sparsemax",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="sparsemax({scores})",
    source="Martins and Astudillo 2016, eq. 2 and algorithm 1",
)
class Sparsemax(nn.Module):
    """The point of the simplex nearest to the scores of a row; most weights are exactly zero.

    weights_ij = max(scores_ij - t_i, 0), t_i such that the row sums to 1
    """

    def forward(
        self, scores: Float[Tensor, "b h q k"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b h q k"]:
        return threshold_weights(scores, mask, 1)
