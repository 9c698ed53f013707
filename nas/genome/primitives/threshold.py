"""Sparse normalisers: weights are the scores above a threshold, which makes each row sum to 1.

    weights_ij = max(scores_ij / p - t_i, 0)^p,  t_i such that the row sums to 1

p = 1 is sparsemax, p = 2 is 1.5-entmax.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.factors import non_negative
from nas.genome.primitives.masks import below_top
from nas.genome.primitives.shapes import Mask, Scores


def threshold_weights(scores: Scores, mask: Mask, power: int) -> Scores:
    """Weights of the visible keys; a row that sees none gives zeros.

    Differentiable on the support alone, which is locally constant; no gradient of a sort.

    Args:
        power: p, 1 or 2.
    """
    z = below_top(scores if power == 1 else scores / 2.0, mask)
    support = support_of(z.detach(), power)
    size = support.sum(dim=-1, keepdim=True).clamp(min=1)
    if power == 1:
        threshold = (z.masked_fill(~support, 0.0).sum(dim=-1, keepdim=True) - 1.0) / size
        return (z - threshold).clamp(min=0.0).to(scores.dtype)
    mean = z.masked_fill(~support, 0.0).sum(dim=-1, keepdim=True) / size
    spread = (z - mean).masked_fill(~support, 0.0).square().sum(dim=-1, keepdim=True)
    # On the true support spread < 1; the floor keeps rounding away from the root of zero.
    root = ((1.0 - spread).clamp(min=1e-12) / size).sqrt()
    weights = (z - mean + root).clamp(min=0.0).square()
    return weights.masked_fill(~support, 0.0).to(scores.dtype)


def support_of(z: Scores, power: int) -> Bool[Tensor, "b h q k"]:
    """Which keys get weight: the longest prefix, by size, whose own threshold is below its end."""
    ordered = z.sort(dim=-1, descending=True).values
    rank = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
    total = ordered.cumsum(dim=-1)
    if power == 1:
        inside = 1.0 + rank * ordered > total
    else:
        mean = total / rank
        spread = ordered.square().cumsum(dim=-1) - rank * mean.square()
        inside = mean - ((1.0 - spread).clamp(min=0.0) / rank).sqrt() < ordered
    last = (inside & (ordered > -2.0)).sum(dim=-1, keepdim=True)
    edge = ordered.gather(-1, (last - 1).clamp(min=0))
    return (z >= edge) & (last > 0)


@primitive(
    "sparsemax",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="sparsemax({scores})",
    source="Martins and Astudillo 2016, eq. 2 and algorithm 1",
    sign=non_negative,
)
class Sparsemax(nn.Module):
    """The point of the simplex nearest to the scores of a row; most weights are exactly zero.

    weights_ij = max(scores_ij - t_i, 0), t_i such that the row sums to 1
    """

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return threshold_weights(scores, mask, 1)


@primitive(
    "entmax15",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="entmax₁.₅({scores})",
    source="Peters et al. 2019, eq. 10 and algorithm 2",
    sign=non_negative,
)
class Entmax15(nn.Module):
    """Half-way between softmax and sparsemax: smooth where positive, zero for far keys.

    weights_ij = max(scores_ij / 2 - t_i, 0)^2, t_i such that the row sums to 1
    """

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return threshold_weights(scores, mask, 2)
