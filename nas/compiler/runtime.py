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
    attn_mask: Bool[Tensor, "..."] | None,
    key_padding_mask: Bool[Tensor, "b n"] | None,
    is_causal: bool,
) -> Bool[Tensor, "..."] | None:
    """One mask, True where attention is allowed, broadcastable to (b, h, n, n); None for all.

    Args:
        attn_mask: bool, (n, n) or (b or 1, h or 1, n, n), True where attention is allowed.
        key_padding_mask: bool, (b, n), True at padding.
        is_causal: token i sees tokens 0 to i only.
    """
    mask = attn_mask
    if mask is not None and (mask.dtype != torch.bool or mask.dim() not in (2, 4)):
        raise ValueError(
            f"attn_mask is {mask.dtype} of shape {tuple(mask.shape)}; expected torch.bool, "
            "(n, n) or (b, h, n, n), True where attention is allowed"
        )
    if is_causal:
        n = x.shape[1]
        past = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        mask = past if mask is None else mask & past
    if key_padding_mask is not None:
        if key_padding_mask.dtype != torch.bool:
            raise ValueError(
                f"key_padding_mask is {key_padding_mask.dtype}; expected torch.bool, "
                "(b, n), True at padding"
            )
        kept = ~key_padding_mask[:, None, None, :]
        mask = kept if mask is None else mask & kept
    return mask
