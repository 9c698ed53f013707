"""Gates of tokens, quadratic products and the norm over all heads, against their formulas."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nas.genome.primitives import get
from tests.tensors import draw

WIDTH, HEADS = 4, 2


def tokens(length: int, count: int) -> list[Tensor]:
    return [draw(2, HEADS, length, WIDTH, seed=i) for i in range(count)]


def built(name: str, **params: Any) -> Any:
    sizes = {"heads": HEADS, "width": WIDTH, "rank": WIDTH}
    primitive = get(name)
    return primitive.module(**{key: sizes[key] for key in primitive.sizes}, **params).double()


def test_token_gates_are_those_of_their_forms() -> None:
    (s,) = tokens(6, 1)
    for form, gate in (
        ("sigmoid", torch.sigmoid(s) ** 0.25),
        ("double_exponential", torch.exp(-torch.exp(s))),
    ):
        found = built("token_gate", form=form, **({"root": 4} if form == "sigmoid" else {}))(s)
        torch.testing.assert_close(torch.exp(found), gate.cumprod(dim=2))


def test_quadratic_products_expand_the_exponential() -> None:
    q, k = tokens(5, 2)
    s = q @ k.mT / WIDTH**0.5
    torch.testing.assert_close(built("quadratic_product")(q, k), 1 + s + s**2 / 2)
    torch.testing.assert_close(built("quadratic_product", form="square")(q, k), s**2)


def test_shared_gates_keep_the_share_of_earlier_tokens() -> None:
    """exp(c_i - c_j) is the share of the softmax over tokens to i that tokens to j hold."""
    (s,) = tokens(6, 1)
    found, total = built("token_gate", form="share")(s), s.exp().cumsum(dim=2)
    expected = total[:, :, 1] / total[:, :, 4]
    torch.testing.assert_close(torch.exp(found[:, :, 4] - found[:, :, 1]), expected)
