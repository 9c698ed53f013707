"""Sums and elementwise products."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.factors import ScoreChange, sign_of_product, sign_of_sum


@primitive(
    "add",
    "first: tokens[h,w], second: tokens[h,w] -> tokens[h,w]",
    "first: scores[h], second: scores[h] -> scores[h]",
    "first: weights[h], second: weights[h] -> weights[h]",
    role=(Role.TRANSFORM, Role.ADJUST, Role.ADJUST),
    notation="({first} + {second})",
    source="Evolving Attention, section 2.1",
    commutes=True,
    score_change=ScoreChange(),
    sign=sign_of_sum,
    is_featurewise=True,
)
class Add(nn.Module):
    """The sum of two tensors of one kind; a key that either score excludes is excluded.

    out = first + second
    """

    def forward(
        self, first: Float[Tensor, "b h n m"], second: Float[Tensor, "b h n m"]
    ) -> Float[Tensor, "b h n m"]:
        return first + second


@primitive(
    "multiply",
    "first: tokens[h,w], second: tokens[h,w] -> tokens[h,w]",
    "first: weights[h], second: weights[h] -> weights[h]",
    role=(Role.TRANSFORM, Role.ADJUST),
    notation="({first} ⊙ {second})",
    source="Evolving Attention, section 2.1",
    commutes=True,
    sign=sign_of_product,
    is_featurewise=True,
)
class Multiply(nn.Module):
    """The elementwise product of two tensors of one kind.

    out = first * second; not for scores, where an excluded key's -inf times 0 is NaN
    """

    def forward(
        self, first: Float[Tensor, "b h n m"], second: Float[Tensor, "b h n m"]
    ) -> Float[Tensor, "b h n m"]:
        return first * second
