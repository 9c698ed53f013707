"""1.5-entmax over the visible keys."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from nas.primitives.base import Role, primitive
from nas.primitives.threshold import threshold_weights


@primitive(
    "entmax15",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="entmax₁.₅({scores})",
    source="Peters et al. 2019, eq. 10 and algorithm 2",
)
class Entmax15(nn.Module):
    """Half-way between softmax and sparsemax: smooth where positive, zero for far keys.

    weights_ij = max(scores_ij / 2 - t_i, 0)^2, t_i such that the row sums to 1
    """

    def forward(
        self, scores: Float[Tensor, "b h q k"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b h q k"]:
        return threshold_weights(scores, mask, 2)
