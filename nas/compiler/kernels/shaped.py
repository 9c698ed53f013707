"""Attention with bounded scores, ALiBi penalties for distance, forget gates, or sigmoid weights.

In causal softmax attention without a bound (cap), a penalty and the logarithm of forget gates are
products of additional features, so that a fused kernel can compute them. All other cases need a
tensor with a number for each pair of query and key, and run for one block of queries at a time.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nas.compiler.kernels.normalisers import add_mask, fast_softmax
from nas.compiler.kernels.runtime import (
    dot_product_attention,
    fused_attention,
    is_fused,
    is_in_16_bits,
    past_keys,
)
from nas.compiler.kernels.windows import by_rows
from nas.genome.primitives.gated import log_decay
from nas.genome.primitives.masks import count_visible
from nas.genome.primitives.score_changes import linear_bias
from nas.genome.primitives.shapes import Key, Mask, Query, Scores, Sums, Values


def shaped_attention(
    query: Query,
    key: Key,
    values: Values,
    mask: Mask,
    scale: float = 1.0,
    is_causal: bool = False,
    bias: Float[Tensor, "b h k 1"] | None = None,
    cap: float | None = None,
    slopes: Float[Tensor, "h"] | None = None,
    start: int = 0,
    decay: tuple[Tensor, Tensor] | None = None,
    weights: str = "softmax",
) -> Sums:
    """Return weights(s)·values over the visible keys, for capped, sloped or decayed scores s.

    The scores are s = cap tanh(p / cap) - slope |i - j| - |c_i - c_j|, with p = scale query·key^T +
    bias^T, for a query at position i and a key at position j.

    Args:
        mask, is_causal, bias: as in ``dot_product_attention``.
        cap: bound of the first term; None for s = p - slope |i - j|.
        slopes: penalty of each head for a unit of distance; None for no penalty.
        start: position of the first query minus the position of the first key.
        decay: sums c of the logarithms of forget gates at the queries and at the keys, each
            (b, h, n, 1), in 32 bits at least; None for c = 0.
        weights: the function of s, "softmax", "sigmoid" or "sigmoid_over_length"; the last is
            sigmoid(s - log n) for n visible keys.
    """
    has_curve = cap is not None or weights != "softmax"
    sizes = key.shape[2], query.shape[-1], values.shape[-1]
    if decay is not None and is_causal and not has_curve and not is_in_16_bits(query):
        # The softmax does not depend on c_i, which all keys of a query share. In 16 bits the
        # gradients of the gates, sums of differences of nearly equal terms, would be noise.
        bias, decay = -decay[1] if bias is None else bias - decay[1], None
        if slopes is None:
            return dot_product_attention(query, key, values, mask, scale, is_causal, bias)
    # In 32 bits the fused kernel is 1.3 times as fast at 65 keys, and 2.6 times at 1,024 keys.
    has_curve = has_curve or decay is not None
    if slopes is not None and not has_curve and is_fused(query, *sizes):
        return sloped_attention(query, key, values, mask, scale, is_causal, bias, slopes, start)

    def attend(
        query: Tensor,
        query_sums: Tensor,
        key: Tensor,
        key_sums: Tensor,
        values: Tensor,
        x: Tensor,
        mask: Tensor | None,
        first: int,
    ) -> Tensor:
        scores = query @ key.transpose(-2, -1)
        if bias is not None:
            scores = scores + bias.to(scores.dtype).transpose(-2, -1)
        if cap is not None:
            scores = cap * torch.tanh(scores / cap)
        if slopes is not None:
            penalty = linear_bias(slopes, query, key, start + first)
            scores = scores + penalty.to(scores.dtype)
        if decay is not None:
            scores = scores + log_decay(query_sums, key_sums.mT).to(scores.dtype)
        return pair_weights(scores, mask, weights) @ values

    mask = past_keys(query, key, mask) if is_causal else mask
    query = query * scale if scale != 1.0 else query
    query_sums, key_sums = (query[..., :0], key[..., :0]) if decay is None else decay
    rows, keys = (query, query_sums), (key, key_sums, values)
    # Four tensors of pairs: the score, its two changes and its weight.
    result: Tensor = by_rows(attend, rows, keys, query[:, 0], mask, planes=4)
    return result


def sloped_attention(
    query: Query,
    key: Key,
    values: Values,
    mask: Mask,
    scale: float,
    is_causal: bool,
    bias: Float[Tensor, "b h k 1"] | None,
    slopes: Float[Tensor, "h"],
    start: int,
) -> Sums:
    """Return ``shaped_attention`` with slopes and softmax but no cap, by torch's fused attention.

    In causal attention, additional features express the penalty. Otherwise a tensor of penalties
    (h, q, k) is added to the scores, for one block of queries at a time.
    """
    query = query * scale
    if is_causal:
        query, key = with_places(query, key, slopes)
        past = None if mask is None else past_keys(query, key, mask)
        return fused_attention(query, key, values, past, 1.0, past is None, bias)

    def attend(
        query: Tensor, key: Tensor, values: Tensor, x: Tensor, mask: Tensor | None, first: int
    ) -> Tensor:
        penalty = linear_bias(slopes, query, key, start + first)[None]
        penalty = penalty if mask is None else penalty.masked_fill(~mask, -torch.inf)
        added = penalty.to(query.dtype)
        return fused_attention(query, key, values, added, 1.0, False, bias)

    # The fused kernel rejects a learned penalty: torch then stores every weight.
    planes = 4 if slopes.requires_grad else 1
    result: Tensor = by_rows(attend, (query,), (key, values), query[:, 0], mask, planes=planes)
    return result


def pair_weights(scores: Scores, mask: Mask, weights: str) -> Scores:
    """Return the attention weights of scores; ``weights`` is as in ``shaped_attention``."""
    if weights == "softmax":
        return fast_softmax(scores, mask)
    hidden = add_mask(scores, mask)
    if weights == "sigmoid_over_length":
        hidden = hidden - count_visible(scores, mask).log()
    return torch.sigmoid(hidden).to(scores.dtype)


def with_places(
    query: Query, key: Key, slopes: Float[Tensor, "h"]
) -> tuple[Float[Tensor, "b h q u"], Float[Tensor, "b h k u"]]:
    """Return queries and keys with two additional features, whose product is slope * j at key j.

    Softmax over the keys gives the same weights as the penalty -slope (i - j), because slope * i is
    equal for all keys. The features of key j are a multiple of 256 and a remainder, which sum to j
    and are exact in 16 bits. In 16 bits the gradient of learned slopes is noisy, because its terms
    nearly cancel.
    """
    places = torch.arange(key.shape[2], device=key.device)
    pair = torch.stack((places - places % 256, places % 256), dim=-1).to(key.dtype)
    batch, heads, queries, _ = query.shape
    rows = slopes.to(query.dtype)[:, None, None].expand(batch, heads, queries, 2)
    columns = pair.expand(batch, key.shape[1], -1, 2)
    return torch.cat((query, rows), dim=-1), torch.cat((key, columns), dim=-1)
