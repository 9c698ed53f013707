"""Faster normalisers, which add masks to scores and find sparse attention weights without sorting.

A sparse normaliser subtracts a threshold from the scores of a row, such that the positive
differences (sparsemax) or their squares (1.5-entmax) sum to one. ``Threshold`` finds this threshold
by Newton's method, from a start below the solution. The steps never pass the solution, because the
sum is convex and decreasing in the threshold. For sparsemax, the method is the algorithm of
Michelot (1986). Gradients have a closed form (Martins and Astudillo 2016, eq. 14; Peters et al.
2019, proposition 2).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from nas.compiler.kernels import faster, pieces
from nas.genome.primitives.normalisers import (
    Entmax15,
    Softmax,
    Sparsemax,
    TopkFilter,
    TopkSoftmax,
    masked_softmax,
    threshold_weights,
)
from nas.genome.primitives.tensors import Mask, Scores, hide


def add_mask(scores: Scores, mask: Bool[Tensor, "..."]) -> Scores:
    """Return the scores, with -inf at the keys that the mask hides.

    The gradients of hidden scores are not set to zero here, because a normaliser does so at -inf.
    """
    nothing = torch.zeros(mask.shape, dtype=scores.dtype, device=mask.device)
    return scores + nothing.masked_fill(~mask, -torch.inf)


def fast_softmax(scores: Scores, mask: Mask) -> Scores:
    """Return ``masked_softmax(scores, mask)`` of scores that are finite, except in float16."""
    if mask is None or scores.dtype == torch.float16:
        return masked_softmax(scores, mask, False)
    # Rows without visible keys are not masked, which would give NaN, but multiplied by zero.
    rows = mask.any(dim=-1, keepdim=True)
    return torch.softmax(add_mask(scores, mask | ~rows), dim=-1) * rows.to(scores.dtype)


def fast_keep_largest(scores: Scores, mask: Mask, count: int) -> Scores:
    """Return ``keep_largest(scores, mask, count)`` without sorting whole rows."""
    hidden = hide(scores, mask)
    largest = hidden.detach().topk(min(count, scores.shape[-1]), dim=-1).values
    return hidden.masked_fill(hidden < largest[..., -1:], -torch.inf)


def softmax_of_largest(scores: Scores, count: int) -> Scores:
    """Return the softmax over the ``count`` largest scores of each row; other weights are zero.

    At least one score of each row must be finite.
    """
    # In float32 at least, which represents all 16-bit values exactly.
    exact = scores.to(torch.promote_types(scores.dtype, torch.float32))
    detached = exact.detach()
    largest = detached.topk(min(count, detached.shape[-1]), dim=-1).values
    least = largest.masked_fill(largest == -torch.inf, torch.inf).amin(dim=-1, keepdim=True)
    # Faster than a comparison and masked_fill. Differences below ``tiny`` are ties.
    tie = -torch.finfo(detached.dtype).tiny
    excluded = F.threshold(detached - least, tie, -torch.inf).clamp(max=0.0)
    return torch.softmax(exact + excluded, dim=-1).to(scores.dtype)


def fast_threshold_weights(scores: Scores, mask: Mask, power: int) -> Scores:
    """Return ``threshold_weights(...)``, without sorting if Newton's method is faster."""
    # Newton's method tests convergence, which synchronises a GPU; for few rows its calls take
    # longer than sorting.
    if torch.compiler.is_compiling() or scores.device.type != "cpu" or scores.numel() < 2**13:
        return threshold_weights(scores, mask, power)
    return Threshold.apply(hide(scores, mask), power)


class Threshold(torch.autograd.Function):
    """The function ``threshold_weights`` without sorting, for scores that are -inf at hidden keys.

    It computes in float64 for float64 scores, and otherwise in float32. Second derivatives raise an
    error.
    """

    @staticmethod
    def forward(ctx: "Any", scores: Scores, power: int) -> Scores:
        planes = scores.flatten(0, 1)
        weights = torch.empty_like(planes, memory_format=torch.contiguous_format)
        for at in pieces(planes):
            weights[at] = weights_by_newton(planes[at], power)
        ctx.power = power
        ctx.save_for_backward(weights)
        return weights.view(scores.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: "Any", gradient: Scores) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        above = gradient.flatten(0, 1)
        result = torch.empty_like(weights)
        for at in pieces(weights):
            wide = torch.promote_types(weights.dtype, torch.float32)
            slope = weights[at].to(wide)
            slope = slope.sign() if ctx.power == 1 else slope.sqrt()
            piece = slope * above[at]
            mean = piece.sum(-1, keepdim=True) / slope.sum(-1, keepdim=True).clamp_min_(1e-30)
            result[at] = piece.addcmul_(slope, mean, value=-1.0)
        return result.view(gradient.shape), None


def weights_by_newton(scores: Float[Tensor, "p q k"], power: int) -> Float[Tensor, "p q k"]:
    """Return sparsemax (``power`` 1) or 1.5-entmax (2) by Newton's method for rows' thresholds."""
    z = scores.to(torch.promote_types(scores.dtype, torch.float32), copy=True)
    top = z.amax(dim=-1, keepdim=True).clamp_(min=torch.finfo(z.dtype).min)
    z.sub_(top).clamp_(min=-2.0 * power)
    if power == 2:
        z.mul_(0.5)
    # Below the root: a sum over some keys, or a mean of powers, is at most the sum over all keys.
    count = z.shape[-1]
    threshold = z.mean(-1, keepdim=True).sub_(count ** (-1.0 / power)).clamp_(min=-1.0)
    over, slope = torch.empty_like(z), torch.empty_like(z)
    least = 4 * torch.finfo(z.dtype).eps
    for _ in range(count + 64):
        torch.sub(z, threshold, out=over).clamp_min_(0.0)
        if power == 1:
            torch.sign(over, out=slope)
            step = (over.sum(-1, keepdim=True) - 1.0) / slope.sum(-1, keepdim=True).clamp_min_(1.0)
        else:
            torch.mul(over, over, out=slope)
            total = over.sum(-1, keepdim=True).clamp_min_(0.5)
            step = (slope.sum(-1, keepdim=True) - 1.0) / (2.0 * total)
        # In a row without visible keys all scores stay below the threshold.
        threshold += step.clamp_min_(0.0)
        if not bool((step > least).any()):
            break
    weights = torch.sub(z, threshold, out=over).clamp_min_(0.0)
    return weights if power == 1 else weights.square_()


@faster
class FastSoftmax(Softmax):
    """Softmax that adds a tensor with -inf at hidden keys to the scores."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return super().forward(scores, mask) if self.filtered else fast_softmax(scores, mask)


@faster
class FastTopkSoftmax(TopkSoftmax):
    """Softmax of the largest scores of each row, without sorting whole rows."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        if self.filtered or scores.dtype == torch.float16:
            return masked_softmax(fast_keep_largest(scores, mask, self.k), mask, filtered=True)
        if mask is None:
            return softmax_of_largest(scores, self.k)
        rows = mask.any(dim=-1, keepdim=True)
        return softmax_of_largest(add_mask(scores, mask | ~rows), self.k) * rows.to(scores.dtype)


@faster
class FastTopkFilter(TopkFilter):
    """Filter that keeps the largest scores of each row, without sorting whole rows."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return fast_keep_largest(scores, mask, self.k)


@faster
class FastSparsemax(Sparsemax):
    """Sparsemax, by Newton's method if that is faster."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return fast_threshold_weights(scores, mask, 1)


@faster
class FastEntmax15(Entmax15):
    """1.5-entmax, by Newton's method if that is faster."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return fast_threshold_weights(scores, mask, 2)
