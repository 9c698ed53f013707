"""Functions that generated source calls: heads, masks, and softmax attention."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from nas.compiler.kernels.normalisers import fast_softmax
from nas.genome.primitives.shapes import Key, Mask, Query, Sums, Tokens, Values


def rounded(x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
    """Return x in the low precision of autocast if autocast is enabled, otherwise x itself.

    Several products with the result then share one cast.
    """
    device = x.device.type
    if device == "meta" or x.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return x  # autocast knows no meta device, and leaves float64 alone
    return x.to(torch.get_autocast_dtype(device))


def split_heads(x: Float[Tensor, "b n hw"], heads: int) -> Tokens:
    """Return the features as heads: (b, n, hw) becomes (b, h, n, w)."""
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, heads, width // heads).transpose(1, 2)


def merge_heads(x: Tokens) -> Float[Tensor, "b n hw"]:
    """Return the concatenated features of all heads: (b, h, n, w) becomes (b, n, hw)."""
    return x.transpose(1, 2).flatten(2)


def repeat_heads(x: Float[Tensor, "b g ..."], heads: int) -> Float[Tensor, "b h ..."]:
    """Return g heads repeated heads / g times: head i is a copy of head i // (heads / g)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def dot_product_attention(
    query: Query,
    key: Key,
    values: Values,
    mask: Mask,
    scale: float = 1.0,
    is_causal: bool = False,
    bias: Float[Tensor, "b h k 1"] | None = None,
) -> Sums:
    """Return softmax(scale query·key^T + bias^T)·values over the visible keys.

    Args:
        mask: broadcastable to (b, h, q, k), True where attention is allowed; None if all keys are
            visible.
        is_causal: whether to hide later keys, in addition to ``mask``.
        bias: one number for each key, which is added to the key's scores.
    """
    if is_causal and mask is not None:
        mask, is_causal = past_keys(query, key, mask), False
    keys, width = key.shape[2:]
    if is_fused(query, keys, width, values.shape[-1]):
        return fused_attention(query, key, values, mask, scale, is_causal, bias)
    if is_causal:
        mask = past_keys(query, key)
    scores = query @ key.transpose(-2, -1)
    if scale != 1.0:
        scores = scores * scale
    if bias is not None:
        scores = scores + bias.to(scores.dtype).transpose(-2, -1)
    return fast_softmax(scores, mask) @ values


def is_fused(query: Query, keys: int, width: int, values: int) -> bool:
    """Whether torch's fused attention is faster than a computation of all scores.

    True on a GPU. On a CPU the result depends on the number type, the numbers of keys and features
    and, in 16 bits, on whether gradients are computed.

    Args:
        keys: number of keys.
        width: width of queries and keys.
        values: width of values.
    """
    if query.is_cuda or not is_in_16_bits(query):
        return query.is_cuda or keys >= fused_from(width, values)
    widest = max(width, values)
    is_slow = widest > 2 * min(width, values) or widest > 64 or torch.is_grad_enabled()
    return keys >= (1024 if is_slow else 512 if widest > 32 else 256)


def fused_from(width: int, values: int) -> int:
    """Return the number of keys from which torch's fused attention is faster on a CPU in 32 bits.

    If keys and values differ in width, the narrower tensor is padded, which takes time.
    """
    if width == values:
        return 0
    return 256 if max(width, values) <= 2 * min(width, values) else 1024


def is_in_16_bits(x: Tensor) -> bool:
    """Whether torch multiplies a tensor in 16 bits, because of its type or of autocast."""
    if x.dtype in (torch.bfloat16, torch.float16):
        return True
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def past_keys(
    query: Query, key: Float[Tensor, "b g k w"], mask: Mask = None
) -> Bool[Tensor, "..."]:
    """Return a mask that hides later keys from each query, and the keys that ``mask`` hides."""
    shape = (query.shape[2], key.shape[2])
    past = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
    return past if mask is None else mask & past


def fused_attention(
    query: Query,
    key: Key,
    values: Values,
    mask: Shaped[Tensor, "..."] | None,
    scale: float,
    is_causal: bool,
    bias: Float[Tensor, "b h k 1"] | None,
) -> Sums:
    """Return the result of ``dot_product_attention``, computed by torch's fused attention.

    Args:
        mask: a bool mask as in ``dot_product_attention``, or a float tensor to add to the scores;
            must be None if ``is_causal``.
    """
    if bias is not None:
        (query, key), scale = with_bias(query * scale, key, bias), 1.0
    # Fused kernels take one width for all three, on CUDA a multiple of 8; for other shapes torch
    # falls back to explicit attention (on a CPU 2 to 6 times slower at 1,024 keys).
    width = values.shape[-1]
    widest = max(width, key.shape[-1])
    widest += -widest % 8 if query.is_cuda else 0
    query, key, values = (widened(x, widest) for x in (query, key, values))
    out = F.scaled_dot_product_attention(query, key, values, mask, is_causal=is_causal, scale=scale)
    return out if out.shape[-1] == width else out[..., :width]


def with_bias(
    query: Query, key: Float[Tensor, "b g k w"], bias: Float[Tensor, "b t k 1"]
) -> tuple[Float[Tensor, "b h q u"], Float[Tensor, "b s k u"]]:
    """Return queries with an additional feature 1, and keys with their bias as a feature.

    The product query·key^T then includes the bias.
    """
    groups = max(key.shape[1], bias.shape[1])
    key, bias = repeat_heads(key, groups), repeat_heads(bias, groups)
    return F.pad(query, (0, 1), value=1.0), torch.cat((key, bias.to(key.dtype)), dim=-1)


def widened(x: Tokens, width: int) -> Float[Tensor, "b h n v"]:
    """Return tokens whose features are padded with zeros to ``width`` features."""
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))


def visible_keys(
    x: Float[Tensor, "b n d"],
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    is_causal: bool,
) -> Mask:
    """Return one mask for all arguments, broadcastable to (b, h, n, n); None if nothing is hidden.

    The mask is True where attention is allowed.

    Args:
        attn_mask: bool, (n, n) or (b or 1, 1, n, n), True where attention is allowed. All heads
            share one mask, because the number of heads may differ between mechanisms.
        key_padding_mask: bool, (b, n), True at padding.
        is_causal: whether token i sees tokens 0 to i only.

    Raises:
        ValueError: a mask has another type or shape.
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
