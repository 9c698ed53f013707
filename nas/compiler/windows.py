"""Windows and global tokens: the mask they mean, and a walk whose cost is linear in length.

SW-SQA and Flex-SQA (Sparse Query Attention, sections 2.5 and 6; global tokens as in Longformer,
Beltagy et al. 2020, section 3.1). The paper's interval [i - k/2, i + k/2] holds k + 1 tokens for
even k, and other systems' windows differ by one; here token i sees token j if |i - j| <= window //
2, and under a causal mask if 0 <= i - j < window. The first ``global_tokens`` are seen by all and
see all.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from nas.compiler.runtime import visible_keys


def in_window(
    queries: Int[Tensor, "q"],
    keys: Int[Tensor, "k"],
    window: int,
    global_tokens: int,
    is_causal: bool,
) -> Bool[Tensor, "q k"]:
    """Which keys the queries may see, both given by their positions."""
    behind = queries[:, None] - keys[None, :]
    near = behind < window if is_causal else behind.abs() <= window // 2
    near = near | (queries < global_tokens)[:, None] | (keys < global_tokens)[None, :]
    return near & (behind >= 0) if is_causal else near


def windowed_keys(
    x: Tensor,
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    is_causal: bool,
    window: int,
    global_tokens: int,
) -> Bool[Tensor, "..."]:
    """As ``visible_keys``, within the window: one mask for the whole sequence."""
    mask = visible_keys(x, attn_mask, key_padding_mask, False)
    places = torch.arange(x.shape[1], device=x.device)
    near = in_window(places, places, window, global_tokens, is_causal)
    return near if mask is None else mask & near


def window_blocks(
    x: Tensor,
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    is_causal: bool,
    window: int,
    global_tokens: int,
) -> list[tuple[slice, slice | Tensor, Bool[Tensor, "..."]]]:
    """Cut the queries into blocks, each with the keys that it reaches and their mask.

    A block is at least 64 queries, and as many as the window is wide; the blocks together cost
    n (window + block + global_tokens) pairs. The global tokens' own rows, which see every key,
    are blocks too.

    Returns:
        For each block its queries (a slice), its keys (a slice, or positions where global tokens
        lie apart), and a bool mask broadcastable to (b, h, queries, keys).
    """
    mask = visible_keys(x, attn_mask, key_padding_mask, False)
    n, size = x.shape[1], max(window, 64)
    ahead = 0 if is_causal else window // 2
    behind = window - 1 if is_causal else window // 2
    places = torch.arange(n, device=x.device)
    first = min(global_tokens, n)
    blocks = []
    for start in (*range(0, first, size), *range(first, n, size)):
        is_global = start < first
        stop = min(start + size, first if is_global else n)
        low = 0 if is_global else max(0, start - behind)
        high = min(n, n if is_global and not is_causal else stop + ahead)
        keys: slice | Tensor = slice(0 if low <= first else low, high)
        if low > first > 0:
            keys = torch.cat((places[:first], places[low:high]))
        near = in_window(places[start:stop], places[keys], window, global_tokens, is_causal)
        if mask is not None:
            rows = mask if mask.shape[-2] == 1 else mask[..., start:stop, :]
            near = near & rows[..., keys]
        blocks.append((slice(start, stop), keys, near))
    return blocks
