"""Two hidden layers over pairs: plain, fast, their gradients, and who takes which."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from nas.kernels.pair_layers import LayerScores
from torch import Tensor
from torch.nn import functional as F

from nas.kernels.pair_scores import Scored, score_pairs
from nas.primitives.neural_attention_authors import sum_layers

QUERIES, KEYS, FIRST, SECOND = 4, 6, 5, 3


def by_pieces(*given: Tensor) -> Tensor:
    found: Tensor = Scored.apply(LayerScores(), *given)
    return found


def by_choice(*given: Tensor) -> Tensor:
    return score_pairs(LayerScores(), *given)


def operands(heads: int = 3, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Left, right, the second layer and its bias, the third and its own."""
    torch.manual_seed(0)
    shapes = [(2, heads, QUERIES, FIRST), (2, heads, KEYS, FIRST)]
    shapes += [(SECOND, FIRST), (SECOND,), (1, SECOND), (1,)]
    return [torch.randn(*shape, dtype=torch.float64).to(dtype) for shape in shapes]


def values_and_gradients(form: Callable[..., Tensor], above: Tensor | None = None) -> list[Tensor]:
    leaves = [t.requires_grad_() for t in operands()]
    scores = form(*leaves)
    above = torch.randn_like(scores, requires_grad=False) if above is None else above
    return [scores, *torch.autograd.grad(scores, leaves, above)]


def check_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected) == 7
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_both_forms_are_the_network_pair_by_pair() -> None:
    left, right, second, bias, third, shift = operands()
    expected = torch.empty(2, 3, QUERIES, KEYS, dtype=torch.float64)
    for i in range(QUERIES):
        for j in range(KEYS):
            hidden = F.relu(left[:, :, i] + right[:, :, j])
            outer = F.relu(hidden @ second.T + bias)
            expected[:, :, i, j] = outer @ third[0] + shift
    for form in (sum_layers, by_pieces):
        torch.testing.assert_close(form(*operands()), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("autocast", [False, True])
def test_sums_of_16_bit_layers_are_rounded_once(autocast: bool) -> None:
    short = [t.requires_grad_() for t in operands(dtype=torch.bfloat16)]
    exact = [t.detach().double().requires_grad_() for t in short]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        scores = by_pieces(*short)
        assert scores.dtype == sum_layers(*short).dtype == torch.bfloat16
        scores.sum().backward()
    expected = sum_layers(*exact)
    expected.sum().backward()
    torch.testing.assert_close(scores, expected.bfloat16(), rtol=2**-7, atol=1e-5)
    for ours, theirs in zip(short, exact, strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad.bfloat16(), rtol=2**-7, atol=1e-5)
