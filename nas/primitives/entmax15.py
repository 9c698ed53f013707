"""1.5-entmax over the visible keys."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nas.primitives.base import Role, primitive
from nas.primitives.masks import below_top


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
        z = below_top(scores / 2.0, mask)
        support = self._support(z.detach())
        # Differentiable on the support alone, which is locally constant; no gradient of a sort.
        size = support.sum(dim=-1, keepdim=True).clamp(min=1)
        mean = z.masked_fill(~support, 0.0).sum(dim=-1, keepdim=True) / size
        spread = (z - mean).masked_fill(~support, 0.0).square().sum(dim=-1, keepdim=True)
        # On the true support spread < 1; the floor keeps rounding away from the root of zero.
        root = ((1.0 - spread).clamp(min=1e-12) / size).sqrt()
        weights = (z - mean + root).clamp(min=0.0).square()
        return weights.masked_fill(~support, 0.0).to(scores.dtype)

    def _support(self, z: Float[Tensor, "b h q k"]) -> Bool[Tensor, "b h q k"]:
        """Which keys get weight: the longest prefix whose own threshold lies below its end."""
        ordered = z.sort(dim=-1, descending=True).values
        rank = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
        mean = ordered.cumsum(dim=-1) / rank
        spread = ordered.square().cumsum(dim=-1) - rank * mean.square()
        threshold = mean - ((1.0 - spread).clamp(min=0.0) / rank).sqrt()
        inside = (threshold < ordered) & (ordered > -2.0)
        last = inside.sum(dim=-1, keepdim=True)
        edge = ordered.gather(-1, (last - 1).clamp(min=0))
        return (z >= edge) & (last > 0)
