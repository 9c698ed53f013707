"""Functions of masks: hidden scores, visible keys per row, padding.

A mask is bool, broadcastable to (b, h, q, k), True where attention is allowed; None if all keys are
visible. A score of -inf marks a key that a filter excluded: normalisers give it weight zero, and
adjustments keep it at -inf. Hidden tokens must have finite values.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nas.genome.primitives.shapes import Mask, Scores, Tokens


def hide(scores: Scores, mask: Mask) -> Scores:
    """The scores, with -inf at the keys that the mask hides."""
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


def count_visible(scores: Scores, mask: Mask) -> Float[Tensor, "..."]:
    """How many keys each row sees, at least 1, broadcastable to (b, h, q, 1)."""
    # In float32 at least: bfloat16 holds no odd number above 256.
    exact = torch.promote_types(scores.dtype, torch.float32)
    keys = scores.shape[-1]
    if mask is None:
        return torch.full((1,), keys, dtype=exact, device=scores.device)
    visible = mask.expand(*mask.shape[:-1], keys).sum(dim=-1, keepdim=True)
    return visible.clamp(min=1).to(exact)


def below_top(scores: Scores, mask: Mask) -> Scores:
    """Scores relative to the row's largest visible one, cut off at -2; hidden keys are at -2.

    For sparse normalisers, whose support ends at a distance of 1: the cut changes no weight and
    its gradient, keeps sums small, and marks a row without visible keys (all of it at -2). In
    float32 at least.
    """
    exact = hide(scores, mask).to(torch.promote_types(scores.dtype, torch.float32))
    top = exact.detach().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(exact.dtype).min)
    return (exact - top).clamp(min=-2.0)


def drop_padding(tokens: Tokens, mask: Mask) -> Tokens:
    """The tokens, with zeros in place of those that no query of any head may see.

    For operations that mix neighbours: what is zero at the edge is zero at padding too. Streams
    of another length than the mask's keys are returned as they are.
    """
    if mask is None:
        return tokens
    full = mask[(None,) * (4 - mask.dim())]
    visible = full.any(dim=2).any(dim=1)[:, None, :, None]
    if visible.shape[2] not in (1, tokens.shape[2]):
        return tokens
    return tokens.masked_fill(~visible, 0.0)
