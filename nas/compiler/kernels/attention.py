"""Heads and softmax attention, in the fastest form for device, type and shape."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from nas.compiler.kernels.normalisers import fast_softmax
from nas.genome.primitives.tensors import Key, Mask, Query, Sums, Tokens, Values


def split_heads(x: Float[Tensor, "b n hw"], heads: int) -> Tokens:
    """Return the features as heads (b, h, n, w)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tokens) -> Float[Tensor, "b n hw"]:
    """Return the concatenated features of all heads (b, h, n, w)."""
    return x.transpose(1, 2).flatten(2)


def repeat_heads(x: Float[Tensor, "b g ..."], heads: int) -> Float[Tensor, "b h ..."]:
    """Return g heads repeated heads / g times: head i is a copy of head i // (heads / g)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def softmax_attention(
    query: Query,
    key: Float[Tensor, "b g k w"],
    value: Float[Tensor, "b g k v"],
    attn_mask: Mask = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Sums:
    """Return softmax(scale query·key^T)·value, as ``F.scaled_dot_product_attention`` does.

    On a CPU torch's function is slow in 16 bits, and for keys and values of different widths. There
    the scores of all pairs are computed if that is faster.
    """
    if not query.is_cuda and enable_gqa:
        key, value = repeat_heads(key, query.shape[1]), repeat_heads(value, query.shape[1])
        enable_gqa = False
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    keys, width = key.shape[2:]
    if is_fused(query, keys, width, value.shape[-1]):
        return fused_attention(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    mask = past_keys(query, key) if is_causal else attn_mask
    return fast_softmax(query @ key.mT * scale, mask) @ value


def is_fused(query: Query, keys: int, width: int, value_width: int) -> bool:
    """Whether torch's fused attention is faster than a computation of all scores."""
    widest, narrowest = max(width, value_width), min(width, value_width)
    if query.is_cuda or not is_in_16_bits(query):
        # The narrower tensor is padded, which takes time.
        least = 0 if width == value_width else 256 if widest <= 2 * narrowest else 1024
        return query.is_cuda or keys >= least
    is_slow = widest > 2 * narrowest or widest > 64 or torch.is_grad_enabled()
    return keys >= (1024 if is_slow else 512 if widest > 32 else 256)


def is_in_16_bits(x: Tensor) -> bool:
    """Whether torch multiplies a tensor in 16 bits, because of its type or of autocast."""
    if x.dtype in (torch.bfloat16, torch.float16):
        return True
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def past_keys(
    query: Query, key: Float[Tensor, "b g k w"], mask: Mask = None
) -> Bool[Tensor, "..."]:
    """Return ``mask`` with later keys hidden from each query."""
    shape = (query.shape[2], key.shape[2])
    past = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
    return past if mask is None else mask & past


def fused_attention(
    query: Query,
    key: Key,
    values: Values,
    mask: Mask,
    is_causal: bool,
    scale: float,
    enable_gqa: bool = False,
) -> Sums:
    """Return softmax(scale query·key^T)·values by torch's fused attention.

    Fused kernels need one width of all three tensors, on CUDA a multiple of 8. Narrower tensors are
    padded with zeros, since torch computes other shapes explicitly (on a CPU in 2 to 6 times the
    time at 1,024 keys). ``mask`` must be None if ``is_causal``.
    """
    width = values.shape[-1]
    widest = max(width, key.shape[-1])
    widest += -widest % 8 if query.is_cuda else 0
    query, key, values = (
        x if x.shape[-1] == widest else F.pad(x, (0, widest - x.shape[-1]))
        for x in (query, key, values)
    )
    out = F.scaled_dot_product_attention(
        query, key, values, mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return out if out.shape[-1] == width else out[..., :width]
