"""Masks of windows, and attention for one block of queries at a time, which bounds memory.

Token i sees token j if |i - j| <= window // 2, and in causal attention if 0 <= i - j < window. The
first ``global_tokens`` tokens see all tokens, and all tokens see these global tokens. In causal
attention, later tokens are always hidden.

The windows are those of SW-SQA and Flex-SQA (the paper "Sparse Query Attention", sections 2.5 and
6). The global tokens are those of Longformer (Beltagy et al. 2020, section 3.1). The papers'
interval [i - k/2, i + k/2] contains k + 1 tokens for even k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nas.compiler.kernels.runtime import visible_keys
from nas.genome.primitives.shapes import Mask


def in_window(
    queries: Int[Tensor, "q"],
    keys: Int[Tensor, "k"],
    window: int,
    global_tokens: int,
    is_causal: bool,
) -> Bool[Tensor, "q k"]:
    """Return a mask that is True where window and global tokens let a query see a key.

    Args:
        queries, keys: positions of the queries and of the keys.
    """
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
) -> Mask:
    """Return the mask of ``visible_keys``, restricted to the keys in the window.

    The mask is broadcastable to (b, h, n, n) for n tokens. It is None if no key is hidden because
    the window reaches all tokens.
    """
    mask = visible_keys(x, attn_mask, key_padding_mask, False)
    if window // 2 >= x.shape[1] - 1 and not is_causal:
        return mask
    places = torch.arange(x.shape[1], device=x.device)
    near = in_window(places, places, window, global_tokens, is_causal)
    return near if mask is None else mask & near


def by_rows(
    attend: "Callable[..., Any]",
    queries: tuple[Tensor, ...],
    keys: tuple[Tensor, ...],
    x: Float[Tensor, "b n d"],
    mask: Mask,
    planes: int,
) -> "Any":
    """Call ``attend`` for some queries at a time, and return the concatenated results.

    A call stores about half a gigabyte in 32 bits, and the backward pass repeats the call. Short
    sequences take one call, which is not repeated.

    Args:
        attend: a function of (*queries, *keys, x, mask, start) that returns a tensor (b, h, q, w)
            or a tuple of such tensors. ``start`` is the position of the first query.
        queries: tensors (b, h, n, w), of which each call gets the queries of a block.
        keys: tensors (b, h, k, w), of which each call gets all keys.
        x: the input of the attention module, of which each call gets the rows of its queries.
        planes: approximately how many numbers ``attend`` stores for each head and pair of query and
            key.
    """
    batch, n = x.shape[:2]
    heads = max(stream.shape[1] for stream in (*queries, *keys))
    size = max(1, 2**27 // max(1, batch * heads * keys[0].shape[2] * planes))
    if n <= size:
        return attend(*queries, *keys, x, mask, 0)
    parts = []
    for start in range(0, n, size):
        rows = slice(start, start + size)
        row_mask = mask if mask is None or mask.shape[-2] == 1 else mask[..., rows, :]
        args = (*(s[:, :, rows] for s in queries), *keys, x[:, rows], row_mask, start)
        if torch.is_grad_enabled():
            checkpoint = torch.utils.checkpoint.checkpoint
            parts.append(checkpoint(attend, *args, use_reentrant=False, preserve_rng_state=False))
        else:
            parts.append(attend(*args))
    return joined(parts)


def joined(parts: "list[Any]") -> "Any":
    """Return the results of several calls, concatenated; each is a tensor or a tuple of tensors."""
    if isinstance(parts[0], tuple):
        return tuple(torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True))
    return torch.cat(parts, dim=2)
