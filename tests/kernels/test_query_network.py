"""Sums over a query's own hidden units: plain, fast, their gradients, and who takes which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from nas.kernels.query_network import NetworkScores, Weighted, sum_network, weighted
from torch import Tensor

from nas.kernels import query_network
from nas.kernels.pair_scores import Scored, score_pairs
from nas.primitives.hidden_units import activate

ACTIVATIONS = ("gelu", "relu", "silu", "tanh")
QUERIES, KEYS, UNITS = 4, 6, 3


def by_pieces(*given: Any) -> Tensor:
    *operands, scale, activation = given
    found: Tensor = Scored.apply(NetworkScores(scale, activation), *operands)
    return found


def by_choice(*given: Any) -> Tensor:
    *operands, scale, activation = given
    return score_pairs(NetworkScores(scale, activation), *operands)


def operands(batch: int = 2, heads: int = 3, skip: int = 5) -> list[Tensor]:
    """Query, key, rows, seen, out, bias and shift; the skip's keys and the network's differ."""
    torch.manual_seed(0)
    shapes = [(QUERIES, skip), (KEYS, skip), (QUERIES, UNITS, 2), (KEYS, 2)]
    shapes += [(QUERIES, UNITS), (QUERIES, UNITS), (QUERIES, 1)]
    return [torch.randn(batch, heads, *shape, dtype=torch.float64) for shape in shapes]


def equation(query: Tensor, key: Tensor, *rest: Tensor, activation: str) -> Tensor:
    """Query by query, key by key."""
    rows, seen, out, bias, shift = rest
    scores = torch.empty(*query.shape[:3], key.shape[2], dtype=query.dtype)
    for i in range(query.shape[2]):
        for j in range(key.shape[2]):
            inner = torch.stack(
                [(rows[:, :, i, unit] * seen[:, :, j]).sum(-1) for unit in range(UNITS)], -1
            )
            active = activate(inner + bias[:, :, i], activation)
            skip = 0.5 * (query[:, :, i] * key[:, :, j]).sum(-1)
            scores[:, :, i, j] = skip + (out[:, :, i] * active).sum(-1) + shift[:, :, i, 0]
    return scores


def values_and_gradients(
    form: Callable[..., Tensor], given: list[Tensor], activation: str, above: Tensor | None = None
) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in given]
    scores = form(*leaves, 0.5, activation)
    above = (
        torch.linspace(-1, 1, scores.numel()).view_as(scores).to(scores) if above is None else above
    )
    return [scores, *torch.autograd.grad(scores, leaves, above)]


def check_equal(found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-12) -> None:
    assert len(found) == len(expected) == 8
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_both_forms_are_the_equation(activation: str) -> None:
    given = operands()
    expected = equation(*given, activation=activation)
    for form in (sum_network, by_pieces):
        found = form(*given, 0.5, activation)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_operands_may_lie_in_memory_as_they_like() -> None:
    """As they come from a projection: heads inside tokens, keys that heads share."""
    given = operands()
    strided = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in given]
    strided[1] = given[1][:, :1].expand(-1, 3, -1, -1)
    plain = [t.contiguous() for t in strided]
    check_equal(
        [by_pieces(*strided, 0.5, "gelu"), *strided[:7]],
        [sum_network(*plain, 0.5, "gelu"), *plain[:7]],
    )


def test_without_a_skip_queries_count_for_nothing() -> None:
    given = operands()
    leaves = [t.clone().requires_grad_() for t in given]
    fast = by_pieces(*leaves, 0.0, "gelu")
    torch.testing.assert_close(fast, sum_network(*given, 0.0, "gelu"), rtol=0, atol=1e-12)
    found = torch.autograd.grad(fast.sum(), leaves, allow_unused=True)
    expected = torch.autograd.grad(
        sum_network(*leaves, 0.0, "gelu").sum(), leaves, allow_unused=True
    )
    assert expected[0] is None
    for ours, theirs in zip(found, expected, strict=True):
        plain = torch.zeros_like(ours) if theirs is None else theirs
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize("autocast", [False, True])
def test_sums_of_16_bit_units_are_rounded_once(autocast: bool) -> None:
    short = [t.bfloat16().requires_grad_() for t in operands()]
    exact = [t.detach().double().requires_grad_() for t in short]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        scores = by_pieces(*short, 0.5, "gelu")
        assert scores.dtype == sum_network(*short, 0.5, "gelu").dtype == torch.bfloat16
        scores.sum().backward()
    expected = sum_network(*exact, 0.5, "gelu")
    expected.sum().backward()
    torch.testing.assert_close(scores, expected.bfloat16(), rtol=2**-7, atol=1e-5)
    for ours, theirs in zip(short, exact, strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad.bfloat16(), rtol=2**-7, atol=1e-5)


def test_units_are_weighted_with_gradients_of_their_layout() -> None:
    """Weights as they come from a projection: heads inside tokens."""
    out = torch.randn(2, QUERIES, 3, UNITS, dtype=torch.float64).transpose(1, 2).requires_grad_()
    active = torch.randn(2, 3, QUERIES, UNITS, KEYS, dtype=torch.float64, requires_grad=True)
    fast, plain = Weighted.apply(out, active), weighted(out, active)
    torch.testing.assert_close(fast, torch.einsum("bhql,bhqlk->bhqk", out, active))
    above = torch.randn_like(plain).transpose(2, 3).contiguous().transpose(2, 3)
    found = torch.autograd.grad(fast, (out, active), above)
    for ours, theirs in zip(found, torch.autograd.grad(plain, (out, active), above), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert found[1].is_contiguous()
    one = out[:1, :1], active[:1, :1]
    assert torch.autograd.gradgradcheck(Weighted.apply, one, check_batched_grad=True)


def test_weights_may_be_wider_than_units() -> None:
    """A gate is float32 where units are not."""
    active = torch.randn(1, 1, QUERIES, UNITS, KEYS).bfloat16().requires_grad_()
    out = torch.randn(1, 1, QUERIES, UNITS, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        Weighted.apply(out, active).sum().backward()
    assert out.grad is not None
    assert active.grad is not None
    torch.testing.assert_close(out.grad, active.float().sum(-1), rtol=1e-2, atol=1e-2)
    expected = out.bfloat16().unsqueeze(-1).expand_as(active)
    torch.testing.assert_close(active.grad, expected, rtol=1e-2, atol=1e-2)


# --- who takes which


def way_taken(monkeypatch: pytest.MonkeyPatch, given: list[Tensor]) -> str:
    taken: list[str] = []
    plain, fast = sum_network, Scored.apply
    monkeypatch.setattr(
        query_network, "sum_network", lambda *a: taken.append("planes") or plain(*a)
    )
    monkeypatch.setattr(Scored, "apply", lambda *a: taken.append("pieces") or fast(*a))
    by_choice(*given, 0.5, "gelu")
    monkeypatch.undo()
    return taken[0]


def of_size(heads: int, tokens: int, width: int, **kind: Any) -> list[Tensor]:
    shapes = [(tokens, width), (tokens, width), (tokens, 4, width), (tokens, width)]
    shapes += [(tokens, 4), (tokens, 4), (tokens, 1)]
    return [
        torch.empty(1, 1, *shape, **kind).expand(1, heads, *(-1,) * len(shape)) for shape in shapes
    ]


def test_pieces_are_for_many_pairs_of_narrow_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {(8, 65, 8): "planes", (64, 65, 8): "pieces", (8, 300, 8): "pieces"}
    expected |= {(64, 65, 32): "planes", (8, 300, 128): "planes"}
    with torch.no_grad():
        found = {size: way_taken(monkeypatch, of_size(*size)) for size in expected}
        assert found == expected
        short = way_taken(monkeypatch, of_size(64, 65, 8, dtype=torch.bfloat16))
        assert short == "planes"
