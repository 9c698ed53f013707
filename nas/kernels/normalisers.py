"""Fast forms of normalisers: masks that are added, thresholds without a sort."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from nas.kernels import faster
from nas.kernels.threshold import fast_threshold_weights
from nas.primitives.masks import hide
from nas.primitives.shapes import Mask, Scores
from nas.primitives.softmax import Softmax, masked_softmax
from nas.primitives.threshold import Entmax15, Sparsemax
from nas.primitives.topk import TopkFilter, TopkSoftmax


def add_mask(scores: Scores, mask: Mask) -> Scores:
    """The scores, with -inf at the keys that the mask hides.

    Filling scores, forward and backward, takes longer than their softmax; what is added is as small
    as the mask, and has no backward pass: a normaliser has no gradient at -inf.
    """
    return scores if mask is None else scores + mask_bias(mask, scores)


def mask_bias(mask: Bool[Tensor, "..."], scores: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """What hides keys when it is added to their scores, in the shape of the mask."""
    nothing = torch.zeros(mask.shape, dtype=scores.dtype, device=mask.device)
    return nothing.masked_fill(~mask, -torch.inf)


def fast_softmax(scores: Scores, mask: Mask) -> Scores:
    """``masked_softmax`` of scores that are finite, but for float16's, which may be infinite."""
    if mask is None or scores.dtype == torch.float16:
        return masked_softmax(scores, mask, False)
    # Rows without visible keys stay as they are, free of NaN.
    seen = mask.any(dim=-1, keepdim=True)
    return torch.softmax(add_mask(scores, mask | ~seen), dim=-1) * seen.to(scores.dtype)


def fast_keep_largest(scores: Scores, mask: Mask, count: int) -> Scores:
    """``keep_largest`` without a sort of whole rows."""
    hidden = hide(scores, mask)
    largest = hidden.detach().topk(min(count, scores.shape[-1]), dim=-1).values
    return hidden.masked_fill(hidden < largest[..., -1:], -torch.inf)


def softmax_of_largest(scores: Scores, count: int) -> Scores:
    """Softmax over the ``count`` largest scores of each row, of which one is above -inf.

    What excludes the others is added, in a third of the time of a comparison and a filling.
    """
    # In float32 at least, which tells apart all that 16 bits do.
    exact = scores.to(torch.promote_types(scores.dtype, torch.float32))
    known = exact.detach()
    largest = known.topk(min(count, known.shape[-1]), dim=-1).values
    least = largest.masked_fill(largest == -torch.inf, torch.inf).amin(dim=-1, keepdim=True)
    tie = -torch.finfo(known.dtype).tiny * torch.finfo(known.dtype).eps
    excluded = F.threshold(known - least, tie, -torch.inf).clamp(max=0.0)
    return torch.softmax(exact + excluded, dim=-1).to(scores.dtype)


@faster
class FastSoftmax(Softmax):
    """Softmax that adds its mask."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return super().forward(scores, mask) if self.filtered else fast_softmax(scores, mask)


@faster
class FastTopkSoftmax(TopkSoftmax):
    """Softmax of the largest scores, that adds what excludes the others."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        if self.filtered or scores.dtype == torch.float16:
            return masked_softmax(fast_keep_largest(scores, mask, self.k), mask, filtered=True)
        if mask is None:
            return softmax_of_largest(scores, self.k)
        seen = mask.any(dim=-1, keepdim=True)
        return softmax_of_largest(add_mask(scores, mask | ~seen), self.k) * seen.to(scores.dtype)


@faster
class FastTopkFilter(TopkFilter):
    """The filter of the largest scores, without a sort."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return fast_keep_largest(scores, mask, self.k)


@faster
class FastSparsemax(Sparsemax):
    """Sparsemax by Newton's steps where that is faster."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return fast_threshold_weights(scores, mask, 1)


@faster
class FastEntmax15(Entmax15):
    """1.5-entmax by Newton's steps where that is faster."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return fast_threshold_weights(scores, mask, 2)
