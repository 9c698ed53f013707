"""Attention whose scores are changed after the products: softcap, ALiBi, sigmoid.

What is added to a score for its place (ALiBi) may be one more product where only earlier keys are
seen; a curve over the products may not. On a CPU such scores are computed some queries at a time,
on CUDA by FlexAttention, which writes a kernel for them.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nas.compiler.flex import Shaping, flexible_attention
from nas.compiler.runtime import (
    fused_attention,
    fused_or_explicit,
    is_in_16_bits,
    past_keys,
    repeat_heads,
)
from nas.compiler.windows import by_rows
from nas.kernels import way
from nas.primitives.alibi import linear_bias
from nas.primitives.masks import count_visible, hide
from nas.primitives.softmax import masked_softmax


def shaped_attention(
    query: Float[Tensor, "b h q w"],
    key: Float[Tensor, "b g k w"],
    values: Float[Tensor, "b s k v"],
    mask: Bool[Tensor, "..."] | None,
    scale: float = 1.0,
    is_causal: bool = False,
    bias: Float[Tensor, "b t k 1"] | None = None,
    cap: float | None = None,
    slopes: Float[Tensor, "h"] | None = None,
    start: int = 0,
    weights: str = "softmax",
) -> Float[Tensor, "b h q v"]:
    """weights(s)·values over the visible keys, where s = c tanh(p / c) - slope |i - j| and
    p = scale query·key^T + bias^T, by the fastest of several ways.

    Args:
        mask, is_causal, bias: as of ``dot_product_attention``.
        cap, slopes, start, weights: as of ``Shaping``.
    """
    given = (query, key, values, mask, scale, is_causal, bias)
    shaping = Shaping(cap, slopes, start, weights)
    keys, width = key.shape[2:]
    has_curve = cap is not None or weights != "softmax" or slopes is None
    rule = "explicit" if has_curve else sloped_or_explicit(query, keys)
    # Among earlier keys slopes are products, for which there is a kernel without flex; and wide
    # heads are more than a flex kernel's memory on the chip.
    is_narrow = max(width + 1, values.shape[-1]) <= 256
    if query.is_cuda and keys >= 1024 and is_narrow and (has_curve or not is_causal):
        rule = "flex"
    found = rule if is_causal else way("shaped_attention", query, keys, width, rule)
    if found == "flex":
        return flexible_attention(*given, shaping)
    if found == "explicit" or has_curve or slopes is None:
        return explicit_attention(*given, shaping)
    return sloped_attention(*given, slopes, start)


def sloped_or_explicit(query: Float[Tensor, "b h q w"], keys: int) -> str:
    """The rule for slopes alone where nothing was measured.

    In 32 bits the fused kernel wins from 65 keys on (1.3 times there, 2.6 times at 1,024).
    """
    if not is_in_16_bits(query):
        return "sloped"
    is_fused = fused_or_explicit(query, keys, query.shape[-1], True) == "fused"
    return "sloped" if is_fused else "explicit"


def explicit_attention(
    query: Float[Tensor, "b h q w"],
    key: Float[Tensor, "b g k w"],
    values: Float[Tensor, "b s k v"],
    mask: Bool[Tensor, "..."] | None,
    scale: float,
    is_causal: bool,
    bias: Float[Tensor, "b t k 1"] | None,
    shaping: Shaping,
) -> Float[Tensor, "b h q v"]:
    """As ``shaped_attention``, by a score and a weight of each pair, some queries at a time."""

    def attend(
        query: Tensor, key: Tensor, values: Tensor, x: Tensor, mask: Tensor | None, first: int
    ) -> Tensor:
        heads = query.shape[1]
        scores = query @ repeat_heads(key, heads).transpose(-2, -1)
        if bias is not None:
            scores = scores + repeat_heads(bias, heads).to(scores.dtype).transpose(-2, -1)
        if shaping.cap is not None:
            scores = shaping.cap * torch.tanh(scores / shaping.cap)
        if shaping.slopes is not None:
            penalty = linear_bias(shaping.slopes, query, key, shaping.start + first)
            scores = scores + penalty.to(scores.dtype)
        return pair_weights(scores, mask, shaping.weights) @ repeat_heads(values, heads)

    mask = with_past(mask, query, key) if is_causal else mask
    query = query * scale if scale != 1.0 else query
    # What is kept of a pair: the score, its changes and its weight.
    found: Tensor = by_rows(attend, (query,), (key, values), query[:, 0], mask, planes=4)
    return found


def sloped_attention(
    query: Float[Tensor, "b h q w"],
    key: Float[Tensor, "b g k w"],
    values: Float[Tensor, "b s k v"],
    mask: Bool[Tensor, "..."] | None,
    scale: float,
    is_causal: bool,
    bias: Float[Tensor, "b t k 1"] | None,
    slopes: Float[Tensor, "h"],
    start: int,
) -> Float[Tensor, "b h q v"]:
    """Softmax attention with slopes alone, by the fused kernel.

    Among earlier keys a slope is one more product; in both directions it is added by the kernel,
    from a number for each head and pair, some queries at a time.
    """
    query = query * scale
    if is_causal:
        query, key = with_places(query, key, slopes)
        past = None if mask is None else with_past(mask, query, key)
        return fused_attention(query, key, values, past, 1.0, past is None, bias)

    def attend(
        query: Tensor, key: Tensor, values: Tensor, x: Tensor, mask: Tensor | None, first: int
    ) -> Tensor:
        penalty = linear_bias(slopes, query, key, start + first)[None]
        penalty = penalty if mask is None else penalty.masked_fill(~mask, -torch.inf)
        added = penalty.to(query.dtype)
        return fused_attention(query, key, values, added, 1.0, False, bias)

    # A penalty that learns is refused by the fused kernel: torch keeps every weight then.
    planes = 4 if slopes.requires_grad else 1
    found: Tensor = by_rows(attend, (query,), (key, values), query[:, 0], mask, planes=planes)
    return found


def with_past(
    mask: Bool[Tensor, "..."] | None, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b g k w"]
) -> Bool[Tensor, "..."]:
    """A mask that hides later keys as well."""
    past = past_keys(query, key)
    return past if mask is None else mask & past


def pair_weights(
    scores: Float[Tensor, "b h q k"], mask: Bool[Tensor, "..."] | None, weights: str
) -> Float[Tensor, "b h q k"]:
    """The weights of scores, by name."""
    if weights == "softmax":
        return masked_softmax(scores, mask, False)
    hidden = hide(scores, mask)
    if weights == "sigmoid_over_length":
        hidden = hidden - count_visible(scores, mask).log()
    return torch.sigmoid(hidden).to(scores.dtype)


def with_places(
    query: Float[Tensor, "b h q w"], key: Float[Tensor, "b g k w"], slopes: Float[Tensor, "h"]
) -> tuple[Float[Tensor, "b h q u"], Float[Tensor, "b g k u"]]:
    """Two more features, whose product is slope j: softmax sees no difference to -slope (i - j).

    A place is 256 times a number and a rest, which 16 bits hold exactly. The gradient of slopes
    that learn (a temperature above them) is a sum that cancels: in 16 bits it is noisy.
    """
    places = torch.arange(key.shape[2], device=key.device)
    pair = torch.stack((places - places % 256, places % 256), dim=-1).to(key.dtype)
    batch, heads, queries, _ = query.shape
    rows = slopes.to(query.dtype)[:, None, None].expand(batch, heads, queries, 2)
    columns = pair.expand(batch, key.shape[1], -1, 2)
    return torch.cat((query, rows), dim=-1), torch.cat((key, columns), dim=-1)
