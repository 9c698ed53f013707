"""Sparse weights without a sort: values and gradients of the sorting form, and who takes which."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nas.compiler.kernels.normalisers import Threshold
from nas.genome.primitives.normalisers import threshold_weights
from nas.genome.primitives.tensors import hide
from tests.tensors import check_same, draw, with_gradients

POWERS = pytest.mark.parametrize("power", [1, 2], ids=["sparsemax", "entmax15"])


def scores(length: int = 9, size: float = 1.0) -> Tensor:
    return size * draw(2, 3, length, length)


def sorting(z: Tensor, power: int) -> Tensor:
    return threshold_weights(z, None, power)


def values_and_gradient(form: Callable[..., Tensor], z: Tensor, power: int) -> list[Tensor]:
    leaf = z.clone().requires_grad_()
    return with_gradients(form(leaf, power), [leaf])


def check_equal(z: Tensor, power: int, tolerance: float = 1e-10) -> None:
    check_same(
        *(values_and_gradient(form, z, power) for form in (Threshold.apply, sorting)), tolerance
    )


@POWERS
@pytest.mark.parametrize("size", [1e-6, 0.3, 30.0, 1e6])
@pytest.mark.parametrize("length", [1, 9, 300])
def test_newton_equals_sorting(power: int, size: float, length: int) -> None:
    check_equal(scores(length, size), power)
    if length == 300 and 0.001 < size < 100:
        check_equal(scores(length, size).float(), power, 1e-5)


@POWERS
def test_ties_share_their_weight(power: int) -> None:
    """Whole rows of them, at the top, and where the support ends but for a hair."""
    step = 1.0 if power == 1 else 2.0
    rows = torch.tensor(
        [
            [0.0, 0.0, 0.0, 0.0],
            [5.0, 5.0, -3.0, -3.0],
            [0.0, 0.1 - step, 0.1 - step, 0.1 - step],
            [0.0, -0.1 - step, -0.1 - step, -9.0],
        ],
        dtype=torch.float64,
    )
    check_equal(rows.view(1, 1, 4, 4), power)
    weights = Threshold.apply(rows.view(1, 1, 4, 4), power)[0, 0]
    assert weights[0].tolist() == [0.25] * 4
    assert weights[1].tolist() == pytest.approx([0.5, 0.5, 0.0, 0.0])
    assert weights[3].tolist() == [1.0, 0.0, 0.0, 0.0]


@POWERS
def test_hidden_keys_and_empty_rows(power: int) -> None:
    z = scores(8)
    mask = torch.rand(2, 1, 8, 8) < 0.5
    mask[0, 0, 3] = False
    mask[1, 0, 5, 1:] = False
    mask[1, 0, 5, 0] = True
    expected = threshold_weights(z, mask, power)
    found = Threshold.apply(hide(z, mask), power)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    assert found[0, :, 3].abs().max() == 0
    assert (found[1, :, 5, 0] == 1).all()
    hidden = z.masked_fill(~mask, -torch.inf)
    check_equal(hidden, power)


@POWERS
def test_16_bit_scores_are_rounded_once(power: int) -> None:
    z = scores(65, 0.3).bfloat16()
    weights, gradient = values_and_gradient(Threshold.apply, z, power)
    assert weights.dtype == gradient.dtype == torch.bfloat16
    exact = sorting(z.double(), power)
    torch.testing.assert_close(weights, exact.bfloat16(), rtol=2**-7, atol=1e-4)


@POWERS
def test_nan_scores_end_the_iteration(power: int) -> None:
    z = scores()
    z[0, 0, 0, 0] = torch.nan
    weights = Threshold.apply(z, power)
    assert weights[0, 0, 0].isnan().all()
    torch.testing.assert_close(weights[1], sorting(z, power)[1], rtol=0, atol=1e-10)
