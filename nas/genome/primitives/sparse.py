"""Primitives that give exact zeros to most keys: sparsemax, entmax and top-k.

Sparsemax (p = 1) and 1.5-entmax (p = 2) compute

    weights_ij = max(scores_ij / p - t_i, 0)^p,  with t_i such that row i sums to 1
"""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from nas.genome.primitives.base import normaliser, score_change
from nas.genome.primitives.domains import Integer
from nas.genome.primitives.normalisers import masked_softmax
from nas.genome.primitives.signs import lowered
from nas.genome.primitives.tensors import Mask, Scores, below_top, hide


def threshold_weights(scores: Scores, mask: Mask, power: int) -> Scores:
    """Return sparsemax (``power`` 1) or 1.5-entmax (``power`` 2) of the scores of visible keys.

    Gradients flow only through the keys with positive weight, whose selection counts as a constant.
    """
    z = below_top(scores if power == 1 else scores / 2.0, mask)
    support = support_of(z.detach(), power)
    size = support.sum(dim=-1, keepdim=True).clamp(min=1)
    if power == 1:
        threshold = (z.masked_fill(~support, 0.0).sum(dim=-1, keepdim=True) - 1.0) / size
        return (z - threshold).clamp(min=0.0).to(scores.dtype)
    mean = z.masked_fill(~support, 0.0).sum(dim=-1, keepdim=True) / size
    spread = (z - mean).masked_fill(~support, 0.0).square().sum(dim=-1, keepdim=True)
    # On the true support spread < 1; the floor avoids the root of zero after rounding.
    root = ((1.0 - spread).clamp(min=1e-12) / size).sqrt()
    weights = (z - mean + root).clamp(min=0.0).square()
    return weights.masked_fill(~support, 0.0).to(scores.dtype)


def support_of(z: Scores, power: int) -> Bool[Tensor, "b h q k"]:
    """Return a mask of the keys with positive weight, given the result ``z`` of ``below_top``.

    In descending order they are the longest prefix whose last entry exceeds the threshold that the
    entries of this prefix alone would have.
    """
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


@normaliser("sparsemax", "sparsemax({scores})", "Martins and Astudillo 2016, eq. 2 and algorithm 1")
class Sparsemax(nn.Module):
    """Projection of each row of scores onto the simplex: max(scores_ij - t_i, 0)."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return threshold_weights(scores, mask, 1)


@normaliser("entmax15", "entmax₁.₅({scores})", "Peters et al. 2019, eq. 10 and algorithm 2")
class Entmax15(nn.Module):
    """Entmax with alpha = 1.5, between softmax and sparsemax: max(scores_ij / 2 - t_i, 0)^2."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return threshold_weights(scores, mask, 2)


def keep_largest(scores: Scores, mask: Mask, count: int) -> Scores:
    """Return the scores with -inf below the ``count``-th largest visible score of their row."""
    hidden = hide(scores, mask)
    ordered = hidden.detach().sort(dim=-1, descending=True).values
    rank = torch.arange(scores.shape[-1], device=scores.device)
    least = ordered.masked_fill(rank >= count, torch.inf).amin(dim=-1, keepdim=True)
    return hidden.masked_fill(hidden < least, -torch.inf)


@score_change(
    "topk_filter",
    "top_{k}({scores})",
    "Evolving Attention, section 2.1 (k = 10)",
    parameters={"k": Integer(default=10, low=1, high=65536)},
    sign=lowered,
)
class TopkFilter(nn.Module):
    """The k largest visible scores of each row; all smaller scores become -inf."""

    is_filter = True

    def __init__(self, *, k: int = 10) -> None:
        super().__init__()
        self.k = k

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return keep_largest(scores, mask, self.k)


@normaliser(
    "topk_softmax",
    "softmax_top{k}({scores})",
    "Gupta et al. 2021 (Memory-efficient Transformers via Top-k Attention), section 2",
    parameters={"k": Integer(default=10, low=1, high=65536)},
)
class TopkSoftmax(nn.Module):
    """Softmax over the k largest visible scores of each row, as softmax after topk_filter."""

    def __init__(self, filtered: bool = False, *, k: int = 10) -> None:
        super().__init__()
        self.filtered = filtered
        self.k = k

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return masked_softmax(keep_largest(scores, mask, self.k), mask, filtered=True)
