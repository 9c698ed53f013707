"""Heads, means, and sums of values without a matrix of weights: linear attention."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from nas.genome.primitives.tensors import Mask, Query, Scores, Sums, Tokens, Values, count_visible


def split_heads(x: Float[Tensor, "b n hw"], heads: int) -> Tokens:
    """Return the features as heads (b, h, n, w)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tokens) -> Float[Tensor, "b n hw"]:
    """Return the concatenated features of all heads (b, h, n, w)."""
    return x.transpose(1, 2).flatten(2)


def repeat_heads(x: Float[Tensor, "b g ..."], heads: int) -> Float[Tensor, "b h ..."]:
    """Return g heads repeated heads / g times: head i is a copy of head i // (heads / g)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def past_keys(
    query: Query, key: Float[Tensor, "b g k w"], mask: Mask = None
) -> Bool[Tensor, "..."]:
    """Return ``mask`` with later keys hidden from each query."""
    shape = (query.shape[2], key.shape[2])
    past = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
    return past if mask is None else mask & past


def visible_mean(values: Values, mask: Mask, is_causal: bool = False) -> Sums:
    """Return the mean of the values that each token may see; zeros if the token sees none.

    ``is_causal`` hides later values in addition to ``mask``.
    """
    # In float32 at least: 16 bits are too few for sums over long sequences.
    exact = values.to(torch.promote_types(values.dtype, torch.float32))
    if mask is not None and mask.shape[-2] != 1:
        weights = (past_keys(values, values, mask) if is_causal else mask).to(exact.dtype)
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1)
        return weights.to(values.dtype) @ values
    exact, count = visible_tokens(exact, mask, is_causal)
    if is_causal:
        return (exact.cumsum(dim=2) / count).to(values.dtype)
    return (exact.sum(dim=2, keepdim=True) / count).to(values.dtype).expand_as(values)


def visible_tokens(
    tokens: Tokens, mask: Mask, is_causal: bool
) -> tuple[Tokens, Float[Tensor, "_ 1 _ 1"]]:
    """Return the tokens, with zeros for hidden ones, and the number of visible ones at each query.

    The number, in float32 or float64, is at least 1. The mask is the same for every query.
    """
    exact = torch.promote_types(tokens.dtype, torch.float32)
    shape = 1, 1, tokens.shape[2], 1
    kept = tokens.new_ones(shape, dtype=exact) if mask is None else mask.mT.to(exact)
    count = kept.cumsum(dim=-2) if is_causal else kept.sum(dim=-2, keepdim=True)
    return tokens if mask is None else tokens * kept.to(tokens.dtype), count.clamp(min=1)


def linear_attention(
    query: Query,
    key: Float[Tensor, "b g k w"],
    values: Float[Tensor, "b s k v"],
    mask: Mask,
    scale: float = 1.0,
    is_causal: bool = False,
    divide: bool = True,
) -> Sums:
    """Return scale query·key^T·values / n, where n is the number of visible keys.

    The product is computed as query·(key^T·values) if ``mask`` is the same for every query and this
    order is faster (Katharopoulos et al. 2020, section 3.2). ``is_causal`` hides later keys in
    addition to ``mask``. Without ``divide``, n is 1.
    """
    query = query * scale if scale != 1.0 else query
    keys, width = key.shape[2:]
    if is_by_sums(keys, width, is_causal) and (mask is None or mask.shape[-2] == 1):
        values, count = visible_tokens(values, mask, is_causal)
        if is_causal:
            sums = sums_so_far(query, key, values)
            return sums / count.to(query.dtype) if divide else sums
        values = values / count.to(values.dtype) if divide else values
        groups = max(key.shape[1], values.shape[1])  # whose heads have the same keys and values
        sums = repeat_heads(key, groups).mT @ repeat_heads(values, groups)
        return query @ repeat_heads(sums, query.shape[1])
    weights = query @ repeat_heads(key, query.shape[1]).mT
    return sum_of_pairs(weights, values, mask, is_causal, divide)


def sum_of_pairs(
    weights: Scores, values: Float[Tensor, "b s k v"], mask: Mask, is_causal: bool, divide: bool
) -> Sums:
    """Return the sums of the visible values times their weights, or with ``divide`` the means."""
    values = repeat_heads(values, weights.shape[1])
    mask = past_keys(weights, weights.mT, mask) if is_causal else mask
    if divide:
        weights = weights / count_visible(weights, mask).to(weights.dtype)
    return (weights if mask is None else weights.masked_fill(~mask, 0.0)) @ values


def is_by_sums(keys: int, width: int, is_causal: bool) -> bool:
    """Return whether linear attention first multiplies keys with values, which needs no pairs."""
    if torch.compiler.is_compiling():  # the result must hold for any number of keys
        return not is_causal
    return keys > (max(256, width) if is_causal else width)


def with_ones(values: Values) -> Float[Tensor, "b s k _"]:
    """Return values with an additional feature 1, whose weighted sum is the sum of the weights."""
    return torch.cat((values, torch.ones_like(values[..., :1])), dim=-1)


def by_last(sums: Float[Tensor, "b h q _"]) -> Sums:
    """Return the sums of values divided by their last feature, the mean of the weights.

    Means below 1e-6 are replaced by 1e-6, as in the primitive ``ratio``.
    """
    return sums[..., :-1] / sums[..., -1:].clamp(min=1e-6)


def sums_so_far(
    query: Tokens, key: Float[Tensor, "b g n w"], values: Float[Tensor, "b s n v"]
) -> Float[Tensor, "b h n v"]:
    """Return query_i·(the sum of key_j^T values_j over j <= i) for each token i.

    Scores are computed only within a chunk of 128 tokens. Earlier chunks enter as sums of
    key^T·values.
    """
    heads, n = query.shape[1:3]
    rows, columns, row_values = (in_rows(repeat_heads(x, heads)) for x in (query, key, values))
    within = (rows @ columns.mT).tril() @ row_values
    return with_earlier(within, rows, columns, row_values)[:, :, :n]


def in_rows(tokens: Tokens) -> Float[Tensor, "b h m 128 w"]:
    """Return the tokens in chunks, of which zeros fill the last."""
    return F.pad(tokens, (0, 0, 0, -tokens.shape[2] % 128)).unflatten(2, (-1, 128))


def with_earlier(
    within: Float[Tensor, "b h m c v"],
    rows: Float[Tensor, "b h m c w"],
    columns: Float[Tensor, "b h m c w"],
    values: Float[Tensor, "b h m c v"],
) -> Float[Tensor, "b h n v"]:
    """Return the sums of each chunk plus those of linear attention over the chunks before it."""
    sums = columns.mT @ values
    # Not cumsum - sums: then the rounding of later tokens would change earlier results.
    before = F.pad(sums[:, :, :-1].cumsum(dim=2), (0, 0, 0, 0, 1, 0))
    return (within + rows @ before).flatten(2, 3)
