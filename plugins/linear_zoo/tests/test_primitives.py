"""The primitives keep the promises of nas.testing, and equal loops over the tokens with gradients.

The loops keep the state of the papers' recurrences; no solver and no sum over pairs is used.
"""

from __future__ import annotations

import pytest
import torch
from helpers import DIM, HEADS, WIDTH, built, check_same, draw
from linear_zoo.primitives.delta import EraseDelta, FastEraseDelta
from torch import Tensor
from torch.nn import functional as F

from nas.genome.primitives import get
from nas.genome.primitives.base import REGISTRY
from nas.testing import check_primitive

NAMES = [n for n, p in REGISTRY.items() if p.module.__module__.startswith("linear_zoo.")]
LENGTH = pytest.mark.parametrize("length", [5, 17, 64])


@pytest.mark.parametrize("name", NAMES)
def test_primitive_keeps_the_promises_of_all_primitives(name: str) -> None:
    check_primitive(name)


def tokens(length: int, count: int) -> list[Tensor]:
    return [draw(2, HEADS, length, WIDTH, seed=i).requires_grad_() for i in range(count)]


def logarithms(length: int, gates: int = WIDTH) -> Tensor:
    return (-draw(2, HEADS, length, gates, seed=9).square()).requires_grad_()


@LENGTH
@pytest.mark.parametrize("gates", [0, 1, WIDTH])
def test_erase_delta_is_the_recurrence(length: int, gates: int) -> None:
    e, k, v = tokens(length, 3)
    logs = logarithms(length, max(gates, 1))
    e_small, k_small = 0.4 * e, 0.4 * k
    given = (logs.cumsum(dim=2),) if gates else ()
    found = built("erase_delta")(e_small, k_small, v, *given)
    state, out = torch.zeros(2, HEADS, WIDTH, WIDTH, dtype=torch.float64), []
    for t in range(length):
        if gates:
            state = torch.exp(logs[:, :, t])[..., None] * state
        u = v[:, :, t] - torch.einsum("bhw,bhwv->bhv", e_small[:, :, t], state)
        state = state + k_small[:, :, t, :, None] * u[:, :, None]
        out.append(u)
    leaves = [e, k, v, logs] if gates else [e, k, v]
    check_same(found, torch.stack(out, dim=2), leaves)


@pytest.mark.parametrize("gates", [0, 1, WIDTH])
def test_erase_delta_in_chunks_equals_all_pairs(gates: int) -> None:
    leaves = tokens(140, 3)
    # Products of erased and written keys above 1 grow exponentially over the tokens.
    e, k, v = (0.3 * leaf for leaf in leaves)
    given = (logarithms(140, gates).cumsum(dim=2),) if gates else ()
    found, expected = FastEraseDelta()(e, k, v, *given), EraseDelta()(e, k, v, *given)
    check_same(found, expected, leaves)


@LENGTH
def test_softmax_delta_is_the_recurrence(length: int) -> None:
    q, k, v = tokens(length, 3)
    x = draw(2, length, DIM, seed=7).requires_grad_()
    module = built("softmax_delta")
    beta, out = module.strength(x).mT, [v[:, :, 0]]
    for t in range(1, length):
        scores = torch.einsum("bhw,bhjw->bhj", q[:, :, t], k[:, :, :t]) * WIDTH**-0.5
        held = torch.einsum("bhj,bhjw->bhw", scores.softmax(-1), torch.stack(out, dim=2))
        out.append(v[:, :, t] - beta[:, :, t, None] * held)
    leaves = [q, k, v, x, *module.parameters()]
    found = module(q, k, v, x=x)
    check_same(found, torch.stack(out, dim=2), leaves)


@LENGTH
def test_mesa_queries_solve_the_least_squares_problem(length: int) -> None:
    q, k = tokens(length, 2)
    logs, module = logarithms(length, 1), built("mesa_query")
    ridge = torch.diag_embed((F.softplus(module.ridge) + 0.25)[:, 0])
    state, out = torch.zeros(2, HEADS, WIDTH, WIDTH, dtype=torch.float64), []
    for t in range(length):
        state = torch.exp(logs[:, :, t])[..., None] * state
        state = state + k[:, :, t, :, None] * k[:, :, t, None]
        out.append(torch.linalg.solve(state + ridge, q[:, :, t]))
    leaves = [q, k, logs, *module.parameters()]
    found = module(q, k, logs.cumsum(dim=2))
    check_same(found, torch.stack(out, dim=2), leaves)


@pytest.mark.parametrize("length", [5, 17])
def test_path_products_multiply_the_maps_between(length: int) -> None:
    q, k, d = tokens(length, 3)
    x = draw(2, length, DIM, seed=7).requires_grad_()
    module = built("path_product")
    unit, beta = F.normalize(d, dim=-1), 2.0 * torch.sigmoid(module.strength(x)).mT
    rows = []
    for i in range(length):
        row, query = [], q[:, :, i] * WIDTH**-0.5
        for j in reversed(range(i + 1)):
            row.append((query * k[:, :, j]).sum(-1))
            along = (query * unit[:, :, j]).sum(-1, keepdim=True) * unit[:, :, j]
            query = query - beta[:, :, j, None] * along
        rows.append(F.pad(torch.stack(row[::-1], dim=-1), (0, length - i - 1)))
    expected = torch.stack(rows, dim=2)
    found = module(q, k, d, x=x).tril()
    leaves = [q, k, d, x, *module.parameters()]
    check_same(found, expected, leaves)


@LENGTH
def test_shared_gates_and_prefix_softmax_are_means_over_the_tokens_so_far(length: int) -> None:
    q, s, v = tokens(length, 3)
    gates = built("slot_gate", form="share")(s)
    factors = get("gated_product").module(rank=1)(q, built("prefix_softmax")(s), gates, gates)
    found = factors.tril() @ v
    out = []
    for t in range(length):
        share = s[:, :, : t + 1].softmax(dim=2)
        out.append(torch.einsum("bhw,bhjw,bhjv->bhv", q[:, :, t], share, v[:, :, : t + 1]))
    leaves = [q, s, v]
    check_same(found, torch.stack(out, dim=2), leaves)


@LENGTH
def test_slot_sums_are_products_with_the_slots(length: int) -> None:
    q, k, s = tokens(length, 3)
    logs = logarithms(length)
    sums = logs.cumsum(dim=2)
    found = built("slot_sum")((q @ k.mT).tril(), s, sums, sums)
    state, out = torch.zeros(2, HEADS, WIDTH, WIDTH, dtype=torch.float64), []
    for t in range(length):
        state = torch.exp(logs[:, :, t])[:, :, None] * state
        state = state + k[:, :, t, :, None] * s[:, :, t, None]
        out.append(torch.einsum("bhw,bhwm->bhm", q[:, :, t], state))
    leaves = [q, k, s, logs]
    check_same(found, torch.stack(out, dim=2), leaves)


@LENGTH
def test_bonus_products_read_the_state_before_the_token(length: int) -> None:
    q, k, v = tokens(length, 3)
    logs, module = logarithms(length), built("bonus_product")
    sums = logs.cumsum(dim=2)
    late = built("delay_gates")(sums)
    found = module(q, k, sums, sums, late, late).tril() @ v
    state, out = torch.zeros(2, HEADS, WIDTH, WIDTH, dtype=torch.float64), []
    for t in range(length):
        written = k[:, :, t, :, None] * v[:, :, t, None]
        seen = state + module.bonus[:, 0, 0, :, None] * written
        out.append(torch.einsum("bhw,bhwv->bhv", q[:, :, t] * WIDTH**-0.5, seen))
        state = torch.exp(logs[:, :, t])[..., None] * state + written
    leaves = [q, k, v, logs, *module.parameters()]
    check_same(found, torch.stack(out, dim=2), leaves)


def test_bonus_products_are_the_same_in_both_directions() -> None:
    q, k = tokens(7, 2)
    sums = logarithms(7).cumsum(dim=2)
    module, late = built("bonus_product"), built("delay_gates")(sums)
    found = module(q, k, sums, sums, late, late)
    for i, j in ((1, 4), (2, 3)):
        between = torch.exp(sums[:, :, j - 1] - sums[:, :, i])
        expected = (q[:, :, i] * k[:, :, j] * between).sum(-1) * WIDTH**-0.5
        torch.testing.assert_close(found[:, :, i, j], expected)


def test_a_local_linear_correction_keeps_the_sum_of_a_row() -> None:
    scores, weights = draw(2, HEADS, 5, 5), draw(2, HEADS, 5, 5, seed=1).softmax(-1)
    found = built("local_linear")(scores, weights)
    mean = (weights * scores).sum(-1, keepdim=True)
    torch.testing.assert_close(found, weights + weights * mean - weights * scores)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, HEADS, 5).double())


def test_preconditioned_keys_shrink_where_the_curvature_is_large() -> None:
    k, module = tokens(5, 1)[0], built("precondition")
    for size, sign in ((1e6, -1.0), (0.0, 1.0)):
        level = torch.log(torch.tensor(size + 1e-6)).double() - module.center
        factor = 1.5 ** (-level / (1.0 + level.abs()))
        torch.testing.assert_close(module(k, torch.full_like(k, size)), k * factor)
        assert ((factor - 1.0) * sign > 0.3).all()


@pytest.mark.parametrize("form", ["learned", "dynamic"])
def test_shifted_projections_mix_each_token_with_the_previous_one(form: str) -> None:
    module = built("shifted_projection", form=form, rank=3, activation="tanh", bias=1)
    x, (t,) = draw(2, 6, DIM), tokens(6, 1)
    out = []
    for i in range(6):
        change = (x[:, i - 1] if i else torch.zeros(2, DIM).double()) - x[:, i]
        mix = module.mix
        if form == "dynamic":
            inner = x[:, i] + module.first_mix * change
            mix = mix + torch.tanh(inner @ module.down.weight.T) @ module.up.weight.T
        first, _, last = module.map
        mixed = torch.tanh((x[:, i] + mix * change) @ first.weight.T)
        out.append((mixed @ last.weight.T + last.bias).view(2, HEADS, WIDTH))
    torch.testing.assert_close(module(t, x=x), torch.stack(out, dim=2))


def test_levels_count_the_bits_in_which_positions_differ() -> None:
    module, scores, x = built("level_scale", levels=4), draw(2, HEADS, 12, 12), draw(2, 12, DIM)
    scales = F.softplus(module.level(x).unflatten(-1, (HEADS, 4)) * module.weight)
    for start, rows in ((0, slice(None)), (5, slice(5, 9))):
        found = module(scores[:, :, rows], x[:, rows], start)
        for i, j in ((5, 5), (6, 3), (8, 0), (7, 6)):
            level = min((i ^ j).bit_length(), 3)
            expected = scores[:, :, i, j] * scales[:, i, :, level]
            torch.testing.assert_close(found[:, :, i - start, j], expected)


def test_factors_and_strengths() -> None:
    (t,), x = tokens(5, 1), draw(2, 5, DIM)
    scale = built("head_scale", bounded=True)
    torch.testing.assert_close(scale(t), t * torch.sigmoid(scale.factor))
    strength = built("strength", root=2)
    expected = torch.sigmoid(strength.gate(x)).sqrt().mT[..., None].expand_as(t)
    torch.testing.assert_close(strength(t, x=x), expected)
