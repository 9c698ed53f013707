"""Masks, and normalisers against plain loops over rows, with their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import pytest
import torch
from torch import Tensor, nn

from nas.compiler.kernels import fast_class
from nas.genome.primitives.normalisers import (
    Entmax15,
    Ratio,
    ReluSquared,
    Sigmoid,
    Softmax,
    SoftmaxFree,
    SoftmaxOne,
    SoftmaxSink,
    Softpick,
    Sparsemax,
    StickBreaking,
    TopkFilter,
    TopkSoftmax,
    Uniform,
    masked_softmax,
)
from nas.genome.primitives.tensors import count_visible, drop_padding, hide
from tests.tensors import check_same, draw, with_gradients

FastTopkSoftmax = fast_class(TopkSoftmax)


def scores(length: int = 9, size: float = 1.0) -> Tensor:
    return size * draw(2, 3, length, length)


def by_bisection(z: Tensor, power: float) -> Tensor:
    """max(z - t, 0)^power in each row, with t such that the row's sum is 1."""
    high = z.amax(-1, keepdim=True)
    low = high - 1.0
    for _ in range(80):
        middle = (low + high) / 2
        is_low = ((z - middle).clamp(min=0) ** power).sum(-1, keepdim=True) > 1
        low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
    return (z - low).clamp(min=0) ** power


@pytest.mark.parametrize(("size", "length"), [(0.01, 2), (1.0, 9), (30.0, 40)])
def test_sparse_normalisers_solve_their_equations(size: float, length: int) -> None:
    z = scores(length, size)
    torch.testing.assert_close(Sparsemax()(z), by_bisection(z, 1.0), rtol=0, atol=1e-10)
    torch.testing.assert_close(Entmax15()(z), by_bisection(z / 2, 2.0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("module", [Sparsemax(), Entmax15()])
def test_sparse_normalisers_handle_ties_and_large_scores(module: torch.nn.Module) -> None:
    equal = torch.full((1, 1, 1, 8), 1e4, dtype=torch.float32)
    torch.testing.assert_close(module(equal), torch.full_like(equal, 1 / 8))
    equal[..., 0] = 1e4 + 10
    assert module(equal)[0, 0, 0].tolist() == [1.0] + [0.0] * 7


@pytest.mark.parametrize("module", [Sparsemax(), Entmax15()])
@pytest.mark.parametrize("size", [0.001, 1.0])
def test_sparse_normalisers_keep_their_sum_in_float32(module: torch.nn.Module, size: float) -> None:
    z = scores(1024, size)[:1, :1, :32]
    short = module(z.float())
    torch.testing.assert_close(short.sum(-1), torch.ones(1, 1, 32), rtol=0, atol=1e-4)
    torch.testing.assert_close(short.double(), module(z), rtol=0, atol=1e-5)


def test_softmax_one_of_large_scores_adds_a_silent_key() -> None:
    z = scores(size=800.0)
    with_silent = torch.cat((torch.zeros(2, 3, 9, 1, dtype=z.dtype), z), dim=-1)
    expected = torch.softmax(with_silent, -1)[..., 1:]
    torch.testing.assert_close(SoftmaxOne()(z), expected)


def test_uniform_is_a_mean_and_reads_no_score() -> None:
    z, mask = scores().requires_grad_(), torch.ones(9, 9, dtype=torch.bool).tril()
    count = torch.arange(1, 10).double()[:, None]
    x = torch.zeros(2, 9, 4)  # of which only the number of queries is read
    torch.testing.assert_close(Uniform()(z, x, mask), (mask / count).expand(2, 3, 9, 9))
    assert torch.equal(Uniform()(z, x), torch.full((2, 3, 9, 9), 1 / 9, dtype=torch.float64))
    assert not Uniform()(z, x).requires_grad
    blind = mask & (torch.arange(9) != 4)[:, None]
    assert not Uniform()(z, x, blind)[:, :, 4].any()


def test_topk_filter_keeps_what_reaches_the_kth_score() -> None:
    z = torch.tensor([3.0, 1.0, 2.0, 2.0, 0.0]).reshape(1, 1, 1, 5)
    # The second largest is 2; its tie stays, as published.
    assert TopkFilter(k=2)(z).flatten().tolist() == [3.0, -math.inf, 2.0, 2.0, -math.inf]
    assert TopkFilter(k=1)(z).flatten().tolist() == [3.0] + [-math.inf] * 4
    assert torch.equal(TopkFilter(k=99)(z), z)


@pytest.mark.parametrize(("filtered", "count"), [(False, 1), (True, 3), (False, 99)])
def test_topk_softmax_equals_softmax_after_the_filter(filtered: bool, count: int) -> None:
    """In values and gradients, with ties and for a query that sees nothing."""
    causal = torch.ones(9, 9, dtype=torch.bool).tril()
    blind = causal.clone()
    blind[4] = False
    for z in (scores(), scores().round()):
        for mask in (None, causal, blind):
            z = z.detach().requires_grad_()
            kept = TopkFilter(k=count)(z, mask=mask)
            expected = Softmax(filtered=True)(kept, mask=mask)
            found = FastTopkSoftmax(filtered, k=count)(z, mask=mask)
            assert torch.equal(found > 0, expected > 0)
            check_same(with_gradients(found, [z]), with_gradients(expected, [z]), 1e-13)


@pytest.mark.parametrize(
    "module",
    [
        Softmax(),
        SoftmaxOne(),
        Sparsemax(),
        Entmax15(),
        Sigmoid(),
        ReluSquared(),
        TopkSoftmax(k=3),
        FastTopkSoftmax(k=3),
    ],
)
def test_in_float16_a_hidden_score_may_be_infinite(module: nn.Module) -> None:
    """As products of padding are that nobody reads; a sequence may be padding altogether."""
    mask = (torch.arange(9) < 6).expand(2, 1, 1, 9).clone()
    mask[1] = False
    z = scores().half().masked_fill(~mask, torch.inf).requires_grad_()
    weights = module(z, mask=mask)
    assert bool(weights.isfinite().all())
    (gradient,) = torch.autograd.grad(weights.float().square().sum(), z)
    assert bool(gradient.isfinite().all())


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


SCORES = torch.zeros(2, 3, 4, 5)
FULL = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0)) > 0.4


@pytest.mark.parametrize(
    "mask", [FULL, FULL[:1], FULL[:, :1], FULL[0, 0], FULL[:, :1, :1], FULL[0, 0, 0], FULL[..., :1]]
)
def test_counts_follow_the_broadcast_mask(mask: torch.Tensor) -> None:
    expected = mask.expand(2, 3, 4, 5).sum(-1, keepdim=True).clamp(min=1)
    counted = count_visible(SCORES, mask).expand(2, 3, 4, 1)
    assert torch.equal(counted, expected.float())
    assert torch.equal(torch.isfinite(hide(SCORES, mask)), mask.expand(2, 3, 4, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("mask", [FULL, FULL[:, :1, :1], FULL[0, 0], FULL[..., :1]])
def test_what_is_added_hides_whatever_the_scores_are(
    mask: torch.Tensor, dtype: torch.dtype
) -> None:
    """Seen keys at the lowest number there is, hidden ones near the highest."""
    extreme = torch.finfo(dtype)
    seen = mask.expand(SCORES.shape)
    scores = torch.full(SCORES.shape, extreme.min, dtype=dtype)
    scores = scores.masked_fill(~seen, extreme.max / 2).requires_grad_()
    weights = masked_softmax(scores, mask, False)
    assert torch.equal(weights > 0, seen)
    assert torch.equal(weights.sum(-1).round(), seen.any(-1).to(dtype))
    weights.square().sum().backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
    assert not scores.grad[~seen].any()


def test_padding_is_what_no_query_sees() -> None:
    tokens = torch.ones(2, 3, 5, 4)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    assert torch.equal(drop_padding(tokens, causal), tokens)
    kept = torch.tensor([[True] * 5, [True, True, True, False, False]])
    expected = tokens * kept[:, None, :, None]
    assert torch.equal(drop_padding(tokens, kept[:, None, None, :]), expected)
    assert torch.equal(drop_padding(tokens, causal & kept[:, None, None, :]), expected)
    # The heads of a mask need not be those of the tokens.
    by_head = kept[:, None, None, :].expand(2, 12, 5, 5)
    assert torch.equal(drop_padding(tokens, by_head), expected)
