"""Scores from expansions of the exponential."""

from __future__ import annotations

from torch import nn

from nas.genome.primitives.base import Role, pair_macs, primitive
from nas.genome.primitives.domains import Choice
from nas.genome.primitives.shapes import Key, Query, Scores
from nas.genome.primitives.signs import non_negative


@primitive(
    "quadratic_product",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="{form}({query}·{key}ᵀ/√d)",
    source="taylor: Arora et al. 2024 (Based, arXiv 2402.18668); square: Aksenov et al. "
    "2024 (ReBased, arXiv 2402.10644)",
    parameters={"form": Choice(default="taylor", values=("taylor", "square"))},
    macs=pair_macs,
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
