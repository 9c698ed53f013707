"""Scores that are products of a query and a key: dot product, bilinear, cosine, distance."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.genome.primitives.base import Params, Role, Sizes, pair_macs, primitive
from nas.genome.primitives.factors import Factors, non_positive, zero_of_any
from nas.genome.primitives.shapes import Key, Query, Scores, Tokens


@primitive(
    "scaled_dot_product",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="({query}·{key}ᵀ)/√d",
    source="Vaswani et al. 2017, eq. 1",
    macs=pair_macs,
    factors=Factors(is_scaled=True),
    sign=zero_of_any,
)
class ScaledDotProduct(nn.Module):
    """Dot products of queries and keys over the square root of the head's width.

    scores_ij = q_i · k_j / sqrt(r), r the operands' width; for patterns, which hold whole tokens,
    the width of the head that was merged into them (Patterns and Messages, section 4).
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.scale = rank**-0.5

    def forward(self, query: Query, key: Key) -> Scores:
        return query @ key.transpose(-2, -1) * self.scale


def _bilinear_macs(sizes: Sizes, params: Params) -> int:
    return pair_macs(sizes, params) + sizes.heads * sizes.queries * sizes.width**2


@primitive(
    "bilinear",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="{query}·W·{key}ᵀ",
    source="Luong et al. 2015 (general), section 3.1; Evolving Attention, section 2.1",
    macs=_bilinear_macs,
    factors=Factors(query="map"),
    sign=zero_of_any,
)
class Bilinear(nn.Module):
    """Dot products of keys with a learned map of the queries, without a scale.

    scores_ij = (W q_i) · k_j, W of shape w x w, shared by the heads
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width, bias=False)

    def forward(self, query: Query, key: Key) -> Scores:
        return self.map(query) @ key.transpose(-2, -1)


def unit_length(tokens: Tokens) -> Tokens:
    """Tokens of length 1; near zero shorter, so that gradients stay bounded."""
    exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
    length = (exact.square().sum(dim=-1, keepdim=True) + 1e-6).sqrt()
    return (exact / length).to(tokens.dtype)


@primitive(
    "cosine",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="τ·cos({query}, {key})",
    source="Henry et al. 2020 (QKNorm), eq. 4; per head: Liu et al. 2022 (Swin V2), eq. 2",
    macs=pair_macs,
    factors=Factors(query="query_features", key="key_features"),
    sign=zero_of_any,
)
class Cosine(nn.Module):
    """Cosines of the angles between queries and keys, times a learned factor for each head.

    scores_ij = g_h (q_i · k_j) / (|q_i| |k_j|), g = sqrt(w) at the start: scores of independent
    features then vary as much as scaled dot products do.
    """

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((heads,), width**0.5))

    def forward(self, query: Query, key: Key) -> Scores:
        return self.query_features(query) @ self.key_features(key).transpose(-2, -1)

    def query_features(self, query: Query) -> Query:
        """g q / |q|."""
        return unit_length(query) * self.factor.to(query.dtype).view(-1, 1, 1)

    def key_features(self, key: Key) -> Key:
        """k / |k|."""
        return unit_length(key)


@primitive(
    "distance",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="-|{query} - {key}|²/2√d",
    source="Chen et al. 2021 (Skyformer), section 4.1: the logarithm of its Gaussian kernel",
    macs=pair_macs,
    factors=Factors(bias="key_bias", is_scaled=True, has_query_term=True),
    sign=non_positive,
)
class Distance(nn.Module):
    """Negative squared distances of queries and keys: the logarithm of a Gaussian kernel.

    scores_ij = -|q_i - k_j|^2 / (2 sqrt(r)) = (q_i·k_j - |q_i|^2 / 2 - |k_j|^2 / 2) / sqrt(r),
    r the width that scaled dot products are scaled by
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.scale = rank**-0.5

    def forward(self, query: Query, key: Key) -> Scores:
        products = query @ key.transpose(-2, -1)
        lengths = self._half_square(query) + self._half_square(key).transpose(-2, -1)
        return ((products - lengths) * self.scale).to(products.dtype)

    def key_bias(self, key: Key) -> Float[Tensor, "b h k 1"]:
        """-|k|^2 / (2 sqrt(r)), in float32 at least."""
        return self._half_square(key) * -self.scale

    def _half_square(self, tokens: Tokens) -> Float[Tensor, "b h n 1"]:
        exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
        return exact.square().sum(dim=-1, keepdim=True) / 2.0
