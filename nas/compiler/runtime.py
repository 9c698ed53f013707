"""The few functions that a generated module calls around its graph; inlined on export."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def split_heads(x: Float[Tensor, "b n hw"], heads: int) -> Float[Tensor, "b h n w"]:
    """Cut the features into heads."""
    batch, tokens, _ = x.shape
    return x.reshape(batch, tokens, heads, -1).transpose(1, 2)


def merge_heads(x: Float[Tensor, "b h n w"]) -> Float[Tensor, "b n hw"]:
    """Put the heads side by side again."""
    return x.transpose(1, 2).flatten(2)


def repeat_heads(x: Float[Tensor, "b g ..."], heads: int) -> Float[Tensor, "b h ..."]:
    """Give each group of heads its operand: head i reads i // (heads / groups)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def visible_keys(
    x: Float[Tensor, "b n d"],
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    is_causal: bool,
) -> Bool[Tensor, "..."] | None:
    """One mask, True where attention is allowed, broadcastable to (b, h, n, n); None for all.

    Args:
        attn_mask: bool, (n, n) or (b or 1, 1, n, n), True where attention is allowed; heads
            share it, since a mechanism may have other numbers of heads than its backbone.
        key_padding_mask: bool, (b, n), True at padding.
        is_causal: token i sees tokens 0 to i only.
    """
    batch, n = x.shape[0], x.shape[1]
    shapes = ((n, n), (1, 1, n, n), (batch, 1, n, n))
    if attn_mask is not None and (attn_mask.dtype != torch.bool or attn_mask.shape not in shapes):
        raise ValueError(
            f"attn_mask is {attn_mask.dtype} of shape {tuple(attn_mask.shape)}; expected "
            f"torch.bool, ({n}, {n}) or ({batch}, 1, {n}, {n}), True where attention is allowed"
        )
    padding = key_padding_mask
    if padding is not None and (padding.dtype != torch.bool or padding.shape != (batch, n)):
        raise ValueError(
            f"key_padding_mask is {padding.dtype} of shape {tuple(padding.shape)}; expected "
            f"torch.bool, ({batch}, {n}), True at padding"
        )
    mask = attn_mask
    if is_causal:
        past = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        mask = past if mask is None else mask & past
    if padding is not None:
        kept = ~padding[:, None, None, :]
        mask = kept if mask is None else mask & kept
    return mask
