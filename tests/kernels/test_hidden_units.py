"""Sums over hidden units: the plain form, the fast one and its gradients, and who takes which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from nas.kernels.hidden_units import UnitScores
from torch import Tensor
from torch.nn import functional as F

from nas.kernels.pair_scores import Scored, score_pairs
from nas.primitives.hidden_units import split_linear, sum_units

ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu, "tanh": torch.tanh}


SHIFT = torch.tensor(0.3, dtype=torch.float64)


def by_pieces(left: Tensor, right: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    """With a shift and an activation."""
    found: Tensor = Scored.apply(UnitScores(rest[1]), left, right, weight, rest[0])
    return found


def by_choice(left: Tensor, right: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    return score_pairs(UnitScores(rest[1]), left, right, weight, rest[0])


def tokens(heads: int, length: int, width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, heads, length, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(5,), (3, 5)], ids=["shared", "per_head"])
def test_reduction_equals_the_broadcast_sum(activation: str, shape: tuple[int, ...]) -> None:
    left, right = tokens(3, 4, 5, 0), tokens(3, 6, 5, 1)
    weight = torch.randn(shape, dtype=torch.float64)
    units = ACTIVATIONS[activation](left.unsqueeze(3) + right.unsqueeze(2))
    rows = weight if weight.dim() == 1 else weight[:, None, None, :]
    for shift in (SHIFT, torch.randn(3, dtype=torch.float64)):
        found = by_choice(left, right, weight, shift, activation)
        expected = (units * rows).sum(-1) + shift.view(-1, 1, 1)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(5,), (3, 5)], ids=["shared", "per_head"])
@pytest.mark.parametrize("gradient", ["dense", "expanded", "transposed"])
def test_the_fast_form_is_the_plain_one_with_its_gradients(
    activation: str, shape: tuple[int, ...], gradient: str
) -> None:
    operands = [tokens(3, 4, 5, 0), tokens(3, 6, 5, 1), torch.randn(shape, dtype=torch.float64)]
    operands.append(torch.randn(shape[:-1], dtype=torch.float64))
    above = {
        "dense": tokens(3, 4, 6, 2),
        "expanded": torch.ones((), dtype=torch.float64).expand(2, 3, 4, 6),
        "transposed": tokens(3, 6, 4, 2).transpose(2, 3),
    }[gradient]
    fast = values_and_gradients(by_pieces, operands, activation, above)
    plain = values_and_gradients(sum_units, operands, activation, above)
    for ours, theirs in zip(fast, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def values_and_gradients(
    form: Callable[..., Tensor], operands: list[Tensor], activation: str, above: Tensor
) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in operands]
    scores = form(*leaves, activation)
    return [scores, *torch.autograd.grad(scores, leaves, above)]


@pytest.mark.parametrize("activation", ["gelu", "silu", "tanh"])
def test_the_fast_form_has_first_and_second_derivatives(activation: str) -> None:
    operands = [tokens(1, 2, 3, 0), tokens(1, 3, 3, 1), torch.randn(3, dtype=torch.float64)]
    operands.append(SHIFT.clone())
    leaves = [t.requires_grad_() for t in operands]
    assert torch.autograd.gradcheck(lambda *t: by_pieces(*t, activation), leaves)
    assert torch.autograd.gradgradcheck(
        lambda *t: by_pieces(*t, activation), leaves, check_batched_grad=True
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("autocast", [False, True])
def test_sums_of_16_bit_units_are_rounded_once(activation: str, autocast: bool) -> None:
    left, right = (
        t.bfloat16().requires_grad_() for t in (tokens(3, 9, 16, 0), tokens(3, 9, 16, 1))
    )
    weight = torch.randn(16).requires_grad_()
    exact = [t.detach().double().requires_grad_() for t in (left, right, weight)]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        scores = by_pieces(left, right, weight, SHIFT.float(), activation)
        assert (
            scores.dtype
            == sum_units(left, right, weight, SHIFT.float(), activation).dtype
            == torch.float32
        )
        scores.sum().backward()
    expected = sum_units(*exact, SHIFT, activation)
    expected.sum().backward()
    torch.testing.assert_close(scores.double(), expected, rtol=1e-5, atol=1e-5)
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad.double(), exact[2].grad, rtol=1e-5, atol=1e-3)
    for short, wide in ((left, exact[0]), (right, exact[1])):
        torch.testing.assert_close(short.grad, wide.grad.bfloat16(), rtol=2**-7, atol=1e-5)


@pytest.mark.parametrize(("length", "is_plain"), [(20, True), (200, False)])
def test_pairs_in_plenty_take_the_fast_form(length: int, is_plain: bool) -> None:
    left, right = (torch.randn(1, 2, length, 3, requires_grad=True) for _ in range(2))
    weight = torch.randn(3)
    scores = by_choice(left, right, weight, SHIFT.float(), "gelu")
    assert scores.grad_fn is not None
    assert ("Scored" in scores.grad_fn.name()) != is_plain
    torch.testing.assert_close(scores, sum_units(left, right, weight, SHIFT.float(), "gelu"))


def test_split_linear_gives_every_head_its_own_map() -> None:
    x, weight = tokens(3, 4, 5, 0), torch.randn(3, 2, 5, dtype=torch.float64)
    bias = torch.randn(3, 2, dtype=torch.float64)
    one_by_one = [F.linear(x[:, h], weight[h], bias[h]) for h in range(3)]
    torch.testing.assert_close(split_linear(x, weight, bias), torch.stack(one_by_one, 1))
