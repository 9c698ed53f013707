"""Scores from products of queries and keys, weighted sums of values, and their projections."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, always, pair_score, primitive
from nas.genome.primitives.domains import Choice
from nas.genome.primitives.signs import Sign, non_negative, sign_of_product
from nas.genome.primitives.tensors import (
    Key,
    Mask,
    Query,
    Scores,
    Sums,
    Tokens,
    Values,
    drop_padding,
)


@pair_score(
    "scaled_dot_product", "({query}·{key}ᵀ)/√d", "Vaswani et al. 2017, eq. 1", sign=sign_of_product
)
class ScaledDotProduct(nn.Module):
    """Dot products of queries and keys: scores_ij = q_i · k_j / sqrt(r), r = ``rank``.

    r is the operands' width; for operands of model width, as in Patterns, it is the head width.
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.scale = rank**-0.5

    def forward(self, query: Query, key: Key) -> Scores:
        return query @ key.transpose(-2, -1) * self.scale


@pair_score(
    "bilinear",
    "{query}·W·{key}ᵀ",
    "Luong et al. 2015 (general), section 3.1; Evolving Attention, section 2.1",
)
class Bilinear(nn.Module):
    """Unscaled dot products of keys with a learned linear map of the queries.

    scores_ij = (W q_i) · k_j, with one W of shape w x w for all heads
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width, bias=False)

    def forward(self, query: Query, key: Key) -> Scores:
        return self.map(query) @ key.transpose(-2, -1)


def unit_length(tokens: Tokens) -> Tokens:
    """Return each token x divided by max(|x|, 1e-3); the limit bounds the gradient near zero."""
    exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
    return F.normalize(exact, dim=-1, eps=1e-3).to(tokens.dtype)


@pair_score(
    "cosine",
    "τ·cos({query}, {key})",
    "Henry et al. 2020 (QKNorm), eq. 4; per head: Liu et al. 2022 (Swin V2), eq. 2",
)
class Cosine(nn.Module):
    """Cosines of the angles between queries and keys, times a learned factor g of each head.

    scores_ij = g_h (q_i · k_j) / (|q_i| |k_j|), with g_h initially sqrt(w)
    """

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((heads,), width**0.5))

    def forward(self, query: Query, key: Key) -> Scores:
        scaled = unit_length(query) * self.factor.to(query.dtype).view(-1, 1, 1)
        return scaled @ unit_length(key).transpose(-2, -1)


@pair_score(
    "quadratic_product",
    "{form}({query}·{key}ᵀ/√d)",
    "taylor: Arora et al. 2024 (Based, arXiv 2402.18668); square: Aksenov et al. "
    "2024 (ReBased, arXiv 2402.10644)",
    parameters={"form": Choice(default="taylor", values=("taylor", "square"))},
    sign=non_negative,
)
class QuadraticProduct(nn.Module):
    """Quadratic functions of s_ij = q_i · k_j / sqrt(r), which are never negative; r = ``rank``.

    taylor: 1 + s + s^2 / 2, the expansion of exp(s) to second order. square: s^2.
    """

    has_parameters = False

    def __init__(self, rank: int, *, form: str = "taylor") -> None:
        super().__init__()
        self.root = rank**-0.25
        self.is_square = form == "square"

    def forward(self, query: Query, key: Key) -> Scores:
        scores = (query * self.root) @ (key * self.root).mT
        return scores.square() if self.is_square else 1.0 + scores + scores.square() / 2.0


@pair_score(
    "distance",
    "-|{query} - {key}|²/2√d",
    "Chen et al. 2021 (Skyformer), section 4.1: the logarithm of its Gaussian kernel",
    sign=lambda operands: Sign.NON_POSITIVE,
)
class Distance(nn.Module):
    """Negative squared distances of queries and keys, the logarithm of a Gaussian kernel.

    scores_ij = -|q_i - k_j|^2 / (2 sqrt(r)) = (q_i·k_j - |q_i|^2 / 2 - |k_j|^2 / 2) / sqrt(r),
    with r = ``rank`` as in scaled dot products
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.scale = rank**-0.5

    def forward(self, query: Query, key: Key) -> Scores:
        products = query @ key.transpose(-2, -1)
        lengths = self._half_square(query) + self._half_square(key).transpose(-2, -1)
        return ((products - lengths) * self.scale).to(products.dtype)

    def _half_square(self, tokens: Tokens) -> Float[Tensor, "b h n 1"]:
        exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
        return exact.square().sum(dim=-1, keepdim=True) / 2.0


@pair_score(
    "convolutional_score",
    "conv({query})·conv({key})ᵀ",
    "Evolving Attention, section 2.1",
    is_causal_safe=lambda params: False,
)
class ConvolutionalScore(nn.Module):
    """Unscaled dot products of queries and keys that are first convolved over the tokens.

    scores_ij = conv(q)_i · conv(k)_j, with one depthwise convolution of kernel 3 for all heads.
    Each token is mixed with the next one, so a causal mask does not make the scores causal.
    """

    needs_all_tokens = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, kernel_size=3, padding=1, groups=width)

    def forward(self, query: Query, key: Key, mask: Mask = None) -> Scores:
        mixed = self._mix(drop_padding(query, mask))
        return mixed @ self._mix(drop_padding(key, mask)).transpose(-2, -1)

    def _mix(self, tokens: Tokens) -> Tokens:
        columns = tokens.flatten(0, 1).transpose(1, 2)  # heads as further samples
        return self.conv(columns).transpose(1, 2).reshape(tokens.shape)


@primitive(
    "weighted_sum",
    "weights: weights[h], values: tokens[h,w] -> tokens[h,w]",
    role=Role.AGGREGATE,
    notation="{weights}·{values}",
    source="Vaswani et al. 2017, eq. 1",
    is_featurewise=always,
    sign=sign_of_product,
)
class WeightedSum(nn.Module):
    """Sum of the values, weighted for each query: out_i = sum_j weights_ij v_j."""

    def forward(self, weights: Scores, values: Values) -> Sums:
        return weights @ values


@primitive(
    "exclude_value",
    "tokens: tokens[h,w], own: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="({tokens} ⟂ {own})",
    source="Zhai 2026 (Exclusive Self Attention, arXiv 2603.09078), eq. 2",
)
class ExcludeValue(nn.Module):
    """Tokens minus their projections onto the values of the same token and head.

    out_i = o_i - (o_i · u_i) u_i, with u_i = v_i / |v_i|, tokens o and values v (``own``)
    """

    def forward(self, tokens: Tokens, own: Tokens) -> Tokens:
        unit = unit_length(own)
        return tokens - (tokens * unit).sum(dim=-1, keepdim=True) * unit


@primitive(
    "value_skip",
    "tokens: tokens[h,w], own: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="({tokens} + D·{own})",
    source="Gu et al. 2021 (state spaces, arXiv 2111.00396), the term D u; one number of a head: "
    "Dao and Gu 2024 (Mamba-2, arXiv 2405.21060)",
)
class ValueSkip(nn.Module):
    """Each token plus a multiple of the value of the same token: out_i = o_i + D_h v_i.

    D_h is learned and initially 1. The second term is zero if the mask hides all keys from token i.
    """

    reads_hidden_tokens = True

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(heads, 1, 1))

    def forward(self, tokens: Tokens, own: Tokens, mask: Mask = None) -> Tokens:
        skip = own * self.factor.to(own.dtype)
        if mask is not None:
            skip = skip.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)
        return tokens + skip
