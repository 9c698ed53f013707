"""Forget gates, gated products, scans and the delta rule against the plainest recurrences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nas.compiler.kernels.gated import gated_linear_attention, gated_sums
from nas.genome.primitives import get
from nas.genome.primitives.gated import Delta
from tests.tensors import check_same, recurrence, with_gradients

LENGTHS = (5, 150)
WIDTH, HEADS, DIM = 4, 2, 8


def drawn(length: int, gates: int) -> tuple[Tensor, ...]:
    """Random x, queries, keys, values, and the logarithms of gates; some gates are near zero."""
    torch.manual_seed(length + gates)
    shape = (2, HEADS, length, WIDTH)
    tokens = [torch.randn(*shape, dtype=torch.float64) for _ in range(3)]
    logs = -(torch.rand(2, HEADS, length, gates, dtype=torch.float64) ** 4) * 30.0
    x = torch.randn(2, length, DIM, dtype=torch.float64)
    return tuple(t.requires_grad_() for t in (x, *tokens, logs))


@pytest.mark.parametrize("gates", [1, WIDTH])
@pytest.mark.parametrize("length", LENGTHS)
def test_gated_sums_are_the_recurrence(length: int, gates: int) -> None:
    _, *tensors = drawn(length, gates)
    q, k, v, logs = tensors
    found = gated_sums(q, k, v, logs.cumsum(dim=2))
    expected = recurrence(q, k, v, logs.exp())
    check_same(with_gradients(found, tensors), with_gradients(expected, tensors))


@pytest.mark.parametrize("gates", [1, WIDTH])
@pytest.mark.parametrize("is_causal", [False, True])
def test_in_chunks_or_by_pairs_is_the_same(gates: int, is_causal: bool) -> None:
    _, q, k, v, logs = drawn(300, gates)
    sums = logs.cumsum(dim=2)
    kept = torch.ones(2, 1, 1, 300, dtype=torch.bool)
    kept[1, ..., -20:] = False
    for mask in (None, kept):
        found = gated_linear_attention(q, k, v, mask, 0.5, is_causal, gates=sums)
        seen = torch.ones(300, 300).bool().tril() if is_causal else torch.ones(300, 300).bool()
        every = seen.expand(2, 1, -1, -1) if mask is None else seen & mask
        plain = gated_linear_attention(q, k, v, every, 0.5, gates=sums)
        pairs = [with_gradients(each, [q, k, v, logs]) for each in (found, plain)]
        check_same(*pairs)


@pytest.mark.parametrize("gates", [0, 1, WIDTH])
@pytest.mark.parametrize("length", LENGTHS)
def test_linear_attention_over_delta_values_is_the_delta_rule(length: int, gates: int) -> None:
    x, q, k, v, logs = drawn(length, max(gates, 1))
    logs = logs if gates else torch.zeros_like(logs)
    module = Delta(DIM, HEADS).double()
    read = (logs.cumsum(dim=2),) if gates else ()
    keys = F.normalize(k, dim=-1)
    found = recurrence(q, keys, module(k, v, *read, x=x), logs.exp())
    beta = torch.sigmoid(module.strength(x)).mT[..., None]
    expected = recurrence(q, keys, v, logs.exp(), beta)
    leaves = [x, q, k, v, *module.parameters()]
    check_same(with_gradients(found, leaves), with_gradients(expected, leaves))


@pytest.mark.parametrize("gates", [1, WIDTH])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_scan_is_the_recurrence(length: int, gates: int) -> None:
    _, _, _, tokens, logs = drawn(length, gates)
    state, out = torch.zeros(2, HEADS, WIDTH, dtype=torch.float64), []
    for t in range(length):
        state = torch.exp(logs[:, :, t]) * state + tokens[:, :, t]
        out.append(state)
    leaves = [tokens, logs]
    found = get("scan").module()(tokens, logs.cumsum(dim=2))
    check_same(with_gradients(found, leaves), with_gradients(torch.stack(out, dim=2), leaves))


def test_decay_adds_the_logarithms_of_the_gates_between() -> None:
    _, q, k, _, logs = drawn(7, 1)
    scores = q @ k.mT
    found = get("decay").module()(scores, logs.cumsum(dim=2), logs.cumsum(dim=2))
    for i in range(7):
        for j in range(i + 1):
            between = logs[:, :, j + 1 : i + 1, 0].sum(dim=2)
            torch.testing.assert_close(found[:, :, i, j], scores[:, :, i, j] + between)


def test_token_gates_are_sigmoids_of_the_tokens() -> None:
    _, tokens, *_ = drawn(6, 1)
    gates = torch.exp(get("token_gate").module()(tokens))
    torch.testing.assert_close(gates, torch.sigmoid(tokens).cumprod(dim=2))


def test_heads_start_to_forget_at_different_rates() -> None:
    start = {
        form: get("forget_gate").module(dim=8, heads=4, form=form)
        for form in ("sigmoid", "exponential")
    }
    zero = torch.zeros(1, 1, 8)
    gates = {
        form: torch.exp(m(torch.zeros(1, 4, 1, 2), zero)).flatten() for form, m in start.items()
    }
    torch.testing.assert_close(gates["sigmoid"], 1 - 2.0 ** (-2.0 * torch.arange(1, 5)))
    assert (gates["exponential"] < 1).all()
    assert gates["exponential"][0] > 0.99 > 0.9 > gates["exponential"][-1]


def test_gates_that_round_to_one_are_trained() -> None:
    """Sums of float32 are equal where a gate is nearly 1; its derivative is not zero."""
    _, q, k, v, _ = (each.detach().float() for each in drawn(8, 1))
    logs = torch.zeros(2, HEADS, 8, 1, requires_grad=True)
    gated_linear_attention(q, k, v, None, is_causal=True, gates=logs.cumsum(dim=2)).sum().backward()
    assert logs.grad is not None
    assert (logs.grad[:, :, 1:] != 0).all()
