"""Sparsemax over the visible keys."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nas.primitives.base import Role, primitive
from nas.primitives.masks import below_top


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
        z = below_top(scores, mask)
        support = self._support(z.detach())
        # Differentiable on the support alone, which is locally constant; no gradient of a sort.
        size = support.sum(dim=-1, keepdim=True).clamp(min=1)
        threshold = (z.masked_fill(~support, 0.0).sum(dim=-1, keepdim=True) - 1.0) / size
        return (z - threshold).clamp(min=0.0).to(scores.dtype)

    def _support(self, z: Float[Tensor, "b h q k"]) -> Bool[Tensor, "b h q k"]:
        """Which keys get weight: those in the longest prefix with 1 + r z_(r) > z_(1..r) sums."""
        ordered = z.sort(dim=-1, descending=True).values
        rank = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
        inside = (1.0 + rank * ordered > ordered.cumsum(dim=-1)) & (ordered > -2.0)
        last = inside.sum(dim=-1, keepdim=True)
        edge = ordered.gather(-1, (last - 1).clamp(min=0))
        return (z >= edge) & (last > 0)
