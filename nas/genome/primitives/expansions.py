"""Scores from expansions of the exponential."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.genome.primitives.base import Role, pair_macs, primitive
from nas.genome.primitives.domains import Choice
from nas.genome.primitives.factors import Factors, non_negative
from nas.genome.primitives.shapes import Key, Query, Scores, Tokens


@primitive(
    "quadratic_product",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="{form}({query}·{key}ᵀ/√d)",
    source="taylor: Arora et al. 2024 (Based, arXiv 2402.18668); square: Aksenov et al. "
    "2024 (ReBased, arXiv 2402.10644)",
    parameters={"form": Choice(default="taylor", values=("taylor", "square"))},
    macs=pair_macs,
    factors=Factors(
        query="features",
        key="features",
        width=lambda width, params: width**2 + (1 + width) * (params["form"] == "taylor"),
    ),
    sign=non_negative,
)
class QuadraticProduct(nn.Module):
    """Quadratic functions of scaled dot products, which are never negative.

    With s_ij = q_i · k_j / sqrt(r), r = ``rank``: taylor: 1 + s + s^2 / 2, the expansion of exp(s)
    to second order. square: s^2.
    """

    has_parameters = False

    def __init__(self, rank: int, *, form: str = "taylor") -> None:
        super().__init__()
        self.root = rank**-0.25
        self.is_square = form == "square"

    def forward(self, query: Query, key: Key) -> Scores:
        scores = (query * self.root) @ (key * self.root).mT
        return scores.square() if self.is_square else 1.0 + scores + scores.square() / 2.0

    def features(self, tokens: Tokens) -> Float[Tensor, "b h n m"]:
        """Return features whose dot products are the scores."""
        scaled = tokens * self.root
        products = (scaled[..., :, None] * scaled[..., None, :]).flatten(-2)
        if self.is_square:
            return products
        return torch.cat((torch.ones_like(tokens[..., :1]), scaled, products * 0.5**0.5), dim=-1)
