"""The few functions that a generated module calls around its graph; inlined on export."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from nas.primitives.softmax import masked_softmax


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


def dot_product_attention(
    query: Float[Tensor, "b h q w"],
    key: Float[Tensor, "b h k w"],
    values: Float[Tensor, "b h k v"],
    mask: Bool[Tensor, "..."] | None,
    scale: float,
    is_causal: bool = False,
) -> Float[Tensor, "b h q v"]:
    """softmax(scale query·key^T)·values over the visible keys, by the faster of two ways.

    Args:
        mask: broadcastable to (b, h, q, k), True where attention is allowed; None for all.
        is_causal: hide later keys as well.
    """
    # On a CPU in 16 bits the backward of fused attention is the slower one up to some thousand
    # keys (2 to 6 times at 65 to 256); forward, and in 32 bits, it wins from 256 keys on.
    is_short = query.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cpu")
    least = 1024 if is_short and torch.is_grad_enabled() else 256
    if not query.is_cuda and key.shape[2] < least:
        if is_causal:
            past = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
            mask = past.tril() if mask is None else mask & past.tril()
        scores = query @ key.transpose(-2, -1) * scale
        return masked_softmax(scores, mask, False) @ values
    if is_causal and mask is not None:
        past = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
        mask, is_causal = mask & past.tril(), False
    return F.scaled_dot_product_attention(
        query, key, values, attn_mask=mask, is_causal=is_causal, scale=scale
    )


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
