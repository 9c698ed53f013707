"""Linear attention whose scores are quadratic functions of dot products.

Such scores are dot products of features, the products of two features of a token (Arora et al.
2024, arXiv 2402.18668, section 4.2). Within a chunk the scores themselves are cheaper.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nas.compiler.kernels import computed_dtype
from nas.compiler.kernels.attention import (
    in_rows,
    is_by_sums,
    repeat_heads,
    sum_of_pairs,
    visible_tokens,
    with_earlier,
)
from nas.genome.primitives.tensors import Mask, Query, Sums


def quadratic_attention(
    query: Query,
    key: Float[Tensor, "b g k w"],
    values: Float[Tensor, "b s k v"],
    mask: Mask,
    scale: float,
    is_causal: bool = False,
    divide: bool = True,
    is_square: bool = False,
) -> Sums:
    """Return ``linear_attention`` with the scores of the primitive ``quadratic_product``."""
    query, count = query * scale, key.shape[2]
    key, values = repeat_heads(key, query.shape[1]), repeat_heads(values, query.shape[1])
    # Sums of products of features can overflow float16.
    is_featured = not torch.compiler.is_compiling() and computed_dtype(query) != torch.float16
    is_featured = is_featured and is_by_features(count, key.shape[3], is_causal)
    if not is_featured or (mask is not None and mask.shape[-2] > 1):
        weights = quadratic(query @ key.mT, is_square)
        return sum_of_pairs(weights, values, mask, is_causal, divide)
    values, visible = visible_tokens(values, mask, is_causal)
    if is_causal:
        rows, columns, row_values = (in_rows(x) for x in (query, key, values))
        within = quadratic(rows @ columns.mT, is_square).tril() @ row_values
        rows, columns = (quadratic_features(x, is_square) for x in (rows, columns))
        sums = with_earlier(within, rows, columns, row_values)[:, :, :count]
    else:
        query, key = (quadratic_features(x, is_square) for x in (query, key))
        sums = query @ (key.mT @ values)
    return sums / visible.to(sums.dtype) if divide else sums


def is_by_features(keys: int, width: int, is_causal: bool) -> bool:
    """Return whether ``quadratic_attention`` computes features of tokens of this width."""
    return is_by_sums(keys, 2 * quadratic_width(width, is_square=False), is_causal)


def quadratic(scores: Float[Tensor, "..."], is_square: bool) -> Float[Tensor, "..."]:
    """Return s^2 of each score s, or 1 + s + s^2 / 2."""
    return scores.square() if is_square else 1.0 + scores + scores.square() / 2.0


def quadratic_features(tokens: Float[Tensor, "..."], is_square: bool) -> Float[Tensor, "..."]:
    """Return f(x) of the tokens x, with f(x)·f(y) = ``quadratic(x·y)`` for all x and y."""
    products = (tokens[..., :, None] * tokens[..., None, :]).flatten(-2)
    if is_square:
        return products
    return torch.cat((torch.ones_like(tokens[..., :1]), tokens, products * 0.5**0.5), dim=-1)


def quadratic_width(width: int, is_square: bool) -> int:
    """Return the number of the ``quadratic_features`` of a token."""
    return width**2 + (0 if is_square else width + 1)
