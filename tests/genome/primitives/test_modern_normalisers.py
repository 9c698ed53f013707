"""Sinks, ratios, sums, softpick and stick-breaking against plain loops, with their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import pytest
import torch
from torch import Tensor, nn

from nas.genome.primitives.normalisers import (
    Ratio,
    ReluSquared,
    SoftmaxFree,
    SoftmaxOne,
    SoftmaxSink,
    Softpick,
    StickBreaking,
)
from tests.tensors import check_same, draw, with_gradients


def ratio(row: Tensor, module: nn.Module) -> Tensor:
    positive = row.clamp(min=0)
    return positive / positive.sum().clamp(min=1e-6 * len(row))


def softpick(row: Tensor, module: nn.Module) -> Tensor:
    top = row.max().clamp(min=0).detach()
    parts = (row - top).exp() - (-top).exp()
    return parts.relu() / (parts.abs().sum() + 1e-6)


def stick_breaking(row: Tensor, module: nn.Module) -> Tensor:
    weights, left = [], torch.ones(()).double()
    for score in row.flip(0):
        weights.append(left * score.sigmoid())
        left = left * (1 - score.sigmoid())
    return torch.stack(weights[::-1])


def plain_sum(row: Tensor, module: nn.Module) -> Tensor:
    return row / len(row) if module.divide else row


CASES: Final[dict[str, tuple[nn.Module, Callable[..., Tensor]]]] = {
    "ratio": (Ratio(), ratio),
    "softpick": (Softpick(), softpick),
    "stick_breaking": (StickBreaking(), stick_breaking),
    "plain_sum": (SoftmaxFree(divide=False), plain_sum),
    "softmax_free": (SoftmaxFree(), plain_sum),
    "softmax_one": (SoftmaxOne(), lambda row, _: row.exp() / (1 + row.exp().sum())),
    "relu_squared": (ReluSquared(), lambda row, _: row.clamp(min=0) ** 2 / len(row)),
}
MASKS: Final = {
    "none": torch.ones(9, 9, dtype=torch.bool),
    "causal": torch.ones(9, 9, dtype=torch.bool).tril(),
    "padding": (torch.arange(9) < 6).expand(2, 1, 1, 9),
    "holes": draw(2, 3, 9, 9, seed=5) > 0,
}


def by_rows(module: nn.Module, of_row: Callable[..., Tensor], z: Tensor, mask: Tensor) -> Tensor:
    """The weights of each row, computed from its visible keys alone."""
    mask = mask.expand(z.shape)
    out = torch.zeros_like(z)
    for at in torch.cartesian_prod(*(torch.arange(size) for size in z.shape[:3])).tolist():
        visible = mask[tuple(at)].nonzero().flatten()
        if len(visible):
            out[(*at, visible)] = of_row(z[tuple(at)][visible], module)
    return out


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", MASKS)
def test_normaliser_equals_its_formula_row_by_row(name: str, kind: str) -> None:
    (module, of_row), mask = CASES[name], MASKS[kind]
    z = draw(2, 3, 9, 9, seed=1).requires_grad_()
    z.data[0, 0] -= 2.5  # rows of which most or all scores are negative
    given = None if kind == "none" else mask
    check_same(
        with_gradients(module(z, mask=given), [z]),
        with_gradients(by_rows(module, of_row, z, mask), [z]),
    )


def test_a_learned_sink_is_a_further_key() -> None:
    z, module = draw(2, 3, 9, 9), SoftmaxSink(3).double()
    torch.testing.assert_close(module(z), SoftmaxOne()(z))
    nn.init.normal_(module.sink)
    sink = module.sink[:, None, None].exp()
    expected = z.exp() / (sink + z.exp().sum(-1, keepdim=True))
    torch.testing.assert_close(module(z), expected)


@pytest.mark.parametrize("size", [100.0, 3e4])
def test_large_scores_neither_overflow_nor_vanish(size: float) -> None:
    z = torch.tensor([[[[1.0, 1.0, -1.0, -math.inf]]]]) * size
    z.requires_grad_()
    total = torch.tensor([[[[0.5, 0.5, 0.0, 0.0]]]])
    for module in (Softpick(), Ratio()):
        torch.testing.assert_close(module(z), total)
    torch.testing.assert_close(StickBreaking()(z), torch.tensor([[[[0.0, 1.0, 0.0, 0.0]]]]))
    for module in (Softpick(), Ratio(), StickBreaking()):
        (gradient,) = torch.autograd.grad(module(z)[..., 0].sum(), z)
        assert bool(gradient.isfinite().all())
    assert not Softpick()(-z.abs()).any()


def test_softpick_of_scores_near_zero_is_exact_in_float32() -> None:
    torch.manual_seed(0)
    scores = 1e-3 * torch.randn(1, 2, 5, 9, dtype=torch.float64)
    torch.testing.assert_close(
        Softpick()(scores.float()).double(), Softpick()(scores), rtol=2e-6, atol=1e-8
    )
