"""Annotations of tensor shapes, and functions that apply masks to scores and tokens.

Axes are b for batch, h for heads, q for queries, k for keys; tests check the shapes at every call.
Exported files have ``Tensor`` in place of these names. A score of -inf marks a key that a filter
excluded: normalisers give it weight zero, and operations that change scores keep it at -inf. Hidden
tokens must have finite values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Tokens = Float[Tensor, "b h n w"]
Elements = Float[Tensor, "b h n m"]  # tokens, scores or weights
Inputs = Float[Tensor, "b n d"]  # the attention block's input x
Query = Float[Tensor, "b h q w"]
Key = Float[Tensor, "b h k w"]
Values = Float[Tensor, "b h k v"]
Scores = Float[Tensor, "b h q k"]  # scores or weights
Sums = Float[Tensor, "b h q v"]  # weighted sums of values
Gates = Float[Tensor, "b h n g"]  # g is 1, or the width of a head
QueryGates = Float[Tensor, "b h q g"]
KeyGates = Float[Tensor, "b h k g"]
State = Float[Tensor, "b h w v"]  # a sum of keys times values over earlier tokens
# True where attention is allowed, broadcastable to (b, h, q, k); None if all keys are visible.
Mask = Bool[Tensor, "..."] | None
# A function (score, b, h, i, j) of the score of query i and key j in head h of sequence b.
Change = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]

_NAMES: Final = (
    "Tokens Elements Inputs Query Key Values Scores Sums Gates QueryGates KeyGates State"
)
PLAIN: Final = dict.fromkeys(_NAMES.split(), "Tensor") | {
    "Mask": "Tensor | None",
    "Change": "Callable[..., Tensor]",
}


def hide(scores: Scores, mask: Mask) -> Scores:
    """Set the scores of hidden keys to -inf."""
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


def count_visible(scores: Scores, mask: Mask) -> Float[Tensor, "..."]:
    """Return each query's number of visible keys, at least 1, broadcastable to (b, h, q, 1)."""
    # In float32 at least: bfloat16 cannot represent odd numbers above 256.
    exact = torch.promote_types(scores.dtype, torch.float32)
    keys = scores.shape[-1]
    if mask is None:
        return torch.full((1,), keys, dtype=exact, device=scores.device)
    visible = mask.expand(*mask.shape[:-1], keys).sum(dim=-1, keepdim=True)
    return visible.clamp(min=1).to(exact)


def below_top(scores: Scores, mask: Mask) -> Scores:
    """Return the scores minus the largest visible score of their row, clamped at -2.

    Hidden keys get -2. Clamping changes no weight and no gradient, because sparse normalisers give
    weight zero to scores that are more than 1 below the largest. The result has 32 bits or more.
    """
    exact = hide(scores, mask).to(torch.promote_types(scores.dtype, torch.float32))
    top = exact.detach().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(exact.dtype).min)
    return (exact - top).clamp(min=-2.0)


def drop_padding(tokens: Tokens, mask: Mask) -> Tokens:
    """Return the tokens with zeros in place of each token that is hidden from all queries.

    A mask for another number of keys leaves the tokens unchanged.
    """
    if mask is None:
        return tokens
    full = mask[(None,) * (4 - mask.dim())]
    visible = full.any(dim=2).any(dim=1)[:, None, :, None]
    if visible.shape[2] not in (1, tokens.shape[2]):
        return tokens
    return tokens.masked_fill(~visible, 0.0)
