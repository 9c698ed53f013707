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


def test_token_gates_are_sigmoids_of_the_tokens() -> None:
    (s,) = tokens(6, 1)
    gates = torch.exp(built("token_gate")(s))
    torch.testing.assert_close(gates, torch.sigmoid(s).cumprod(dim=2))


def test_quadratic_products_expand_the_exponential() -> None:
    q, k = tokens(5, 2)
    s = q @ k.mT / WIDTH**0.5
    torch.testing.assert_close(built("quadratic_product")(q, k), 1 + s + s**2 / 2)
    torch.testing.assert_close(built("quadratic_product", form="square")(q, k), s**2)
