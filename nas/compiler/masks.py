"""Masks of attention modules."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from nas.genome.primitives.tensors import Mask


def visible_keys(
    x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool
) -> Mask:
    """Return one mask, True where attention is allowed; None if nothing is hidden.

    Raises:
        ValueError: as ``check_masks``.
    """
    check_masks(x, attn_mask, key_padding_mask, is_causal)
    mask, n = attn_mask, x.shape[1]
    if is_causal:
        past = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        mask = past if mask is None else mask & past
    if key_padding_mask is not None:
        kept = ~key_padding_mask[:, None, None, :]
        mask = kept if mask is None else mask & kept
    return mask


def check_masks(
    x: Tensor,
    attn_mask: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    is_causal: bool = False,
) -> None:
    """Raise ValueError if tokens or a mask of an attention module have another type or shape.

    Args:
        x: the tokens, (b, n, dim).
        attn_mask: bool, (n, n) or (b or 1, 1, n, n), True where attention is allowed. All heads
            share one mask, because the number of heads may differ between mechanisms.
        key_padding_mask: bool, (b, n), True at padding.
        is_causal: whether token i sees tokens 0 to i only.
    """
    if x.ndim != 3:
        raise ValueError(f"found tokens of shape {tuple(x.shape)}; expected (batch, tokens, dim)")
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


def in_window(
    queries: Int[Tensor, "..."],
    keys: Int[Tensor, "..."],
    window: int,
    global_tokens: int,
    is_causal: bool,
) -> Bool[Tensor, "..."]:
    """Return True where a window or global tokens let a query see a key, given their positions.

    Token i sees token j if |i - j| <= window // 2, and in causal attention if 0 <= i - j < window.
    Global tokens, the first of the sequence, see all tokens and are seen by all tokens; in causal
    attention later tokens are always hidden.

    Source: windows of Sparse Query Attention, sections 2.5 and 6, whose interval [i - k/2, i + k/2]
    contains k + 1 tokens for even k; global tokens of Beltagy et al. 2020, section 3.1.
    """
    behind = queries - keys
    near = behind < window if is_causal else behind.abs() <= window // 2
    if global_tokens:
        near = near | (queries < global_tokens) | (keys < global_tokens)
    return near & (behind >= 0) if is_causal else near
