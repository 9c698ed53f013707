"""Attention by FlexAttention: on CUDA, one kernel for scores that a function changes.

    Dong et al. 2024 (Flex Attention), section 3

torch.compile writes the kernel; without it every score would be kept. On a CPU the same functions
run uncompiled, forward alone, and are compared there with the plain form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nas.compiler.runtime import repeat_heads, widened, with_bias

if TYPE_CHECKING:
    from collections.abc import Callable


class Flex:
    """FlexAttention, compiled once for the process, in variants by what changes the scores.

    torch's own limit is 8, after which it would keep every score; beyond this one it is an error.
    """

    compiled: "Callable[..., Any] | None" = None
    variants = 1024


class Shaping:
    """What becomes of products p of query and key: s = c tanh(p / c) - slope |i - j|, then weights.

    Args:
        cap: c; None for s = p - slope |i - j|.
        slopes: of each head, (h); None for none.
        start: the place of the first query, counted from the first key.
        weights: softmax, sigmoid, or sigmoid_over_length: of s - log of the visible keys' number.
    """

    def __init__(
        self,
        cap: float | None = None,
        slopes: Float[Tensor, "h"] | None = None,
        start: int = 0,
        weights: str = "softmax",
    ) -> None:
        self.cap, self.slopes, self.start, self.weights = cap, slopes, start, weights


def flexible_attention(
    query: Float[Tensor, "b h q w"],
    key: Float[Tensor, "b g k w"],
    values: Float[Tensor, "b s k v"],
    mask: Bool[Tensor, "..."] | None,
    scale: float,
    is_causal: bool,
    bias: Float[Tensor, "b t k 1"] | None,
    shaping: Shaping,
) -> Float[Tensor, "b h q v"]:
    """As ``shaped_attention``; sums of sigmoids are exp(log sigmoid), normalised, times their sum.

    Source of the latter: attention-gym's activation mods.
    """
    from torch.nn.attention.flex_attention import AuxRequest

    if bias is not None:
        (query, key), scale = with_bias(query * scale, key, bias), 1.0
    heads, width = query.shape[1], values.shape[-1]
    if key.shape[1] != values.shape[1]:
        key, values = repeat_heads(key, heads), repeat_heads(values, heads)
    # Kernels take one width, a power of two from 16 on.
    widest = max(16, 1 << (max(key.shape[-1], width) - 1).bit_length())
    query, key, values = (widened(x, widest) for x in (query, key, values))
    hidden, change = hiding(query, key, mask, is_causal), changing(shaping)
    weights = shaping.weights
    if weights == "sigmoid_over_length":
        change = over_length(change, counted(query, key, mask, is_causal))
    change = change if weights == "softmax" else log_sigmoid(change)
    given = (query, key, values, change, hidden, scale, key.shape[1] < heads)
    out, found = flex_call(query.is_cuda)(*given, return_aux=AuxRequest(lse=weights != "softmax"))
    if weights != "softmax":
        out = out * found.lse.exp()[..., None].to(out.dtype)
    result: Tensor = out[..., :width]
    return result


def flex_call(is_compiled: bool) -> "Any":
    """FlexAttention as it is, or compiled."""
    from torch.nn.attention.flex_attention import flex_attention

    if not is_compiled:
        return flex_attention
    Flex.compiled = Flex.compiled or torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return torch._dynamo.config.patch(recompile_limit=Flex.variants)(Flex.compiled)


def changing(shaping: Shaping) -> "Callable[..., Tensor]":
    """The function of one score that bends it and takes off what its distance costs."""
    cap, slopes, start = shaping.cap, shaping.slopes, shaping.start

    def change(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if cap is not None:
            score = cap * torch.tanh(score / cap)
        if slopes is not None:
            score = score - slopes[h] * (i + start - j).abs()
        return score

    return change


def over_length(
    change: "Callable[..., Tensor]", count: Float[Tensor, "c q"]
) -> "Callable[..., Tensor]":
    """After a change, the logarithm of the number of the query's visible keys taken off."""
    logs, rows = count.log(), count.shape[0]

    def changed(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return change(score, b, h, i, j) - logs[b % rows, i]

    return changed


def log_sigmoid(change: "Callable[..., Tensor]") -> "Callable[..., Tensor]":
    """After a change, the logarithm of the score's sigmoid."""

    def changed(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        found = change(score, b, h, i, j)
        # Stable, and of operations that every kernel has.
        return found.clamp(max=0.0) - torch.log1p(torch.exp(-found.abs()))

    return changed


def hiding(query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool) -> "Any":
    """The mask in blocks, so that those without a visible pair cost nothing; None for no mask."""
    from torch.nn.attention.flex_attention import create_block_mask

    queries, keys = query.shape[2], key.shape[2]
    if mask is None and not is_causal:
        return None
    seen = None
    if mask is not None:
        whole = mask[(None,) * (4 - mask.dim())]
        seen = whole.expand(-1, 1, queries, keys)[:, 0]

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if seen is None:
            return j <= i
        own = seen[b % seen.shape[0], i, j]  # sequences may share one mask
        return own & (j <= i) if is_causal else own

    batch = None if seen is None or seen.shape[0] == 1 else seen.shape[0]
    return create_block_mask(visible, batch, None, queries, keys, device=query.device)


def counted(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool
) -> Float[Tensor, "c q"]:
    """How many keys each query sees, at least 1, for one or every sequence."""
    queries, keys = query.shape[2], key.shape[2]
    past = torch.ones(queries, keys, dtype=torch.bool, device=query.device)
    seen = past.tril() if is_causal else past
    seen = seen if mask is None else mask & seen
    exact = torch.promote_types(query.dtype, torch.float32)
    return seen.sum(dim=-1).clamp(min=1).to(exact).reshape(-1, queries)
