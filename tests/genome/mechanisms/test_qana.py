"""QANA against the plainest reference, in float64: what its paper says, and where it errs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.compiler import build_attention
from nas.costs import attention_cost
from nas.genome import Genome
from nas.genome.mechanisms import MECHANISMS
from nas.genome.primitives.positions import rotate
from nas.genome.primitives.qana import Qana
from tests.tensors import ACTIVATIONS, add_noise, draw, merged, streams

DIM, HEADS, WIDTH, HIDDEN = 24, 3, 8, 4


def qana(**params: Any) -> Genome:
    """The named mechanism with other parameters."""
    genome = MECHANISMS["qana"].genome
    node = replace(genome.nodes[0], params=tuple(sorted(params.items())))
    return replace(genome, nodes=(node, *genome.nodes[1:]))


def module(**params: Any) -> Qana:
    torch.manual_seed(0)
    built = Qana(DIM, HEADS, WIDTH, WIDTH, True, **params).double()
    add_noise(built, 0.3)
    return built


def inputs(tokens: int = 7, keys: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    query = draw(2, HEADS, tokens, WIDTH)
    return query, draw(2, HEADS, keys or tokens, WIDTH, seed=1), draw(2, tokens, DIM, seed=2)


def slices(built: Qana, x: Tensor) -> tuple[Tensor, ...]:
    """U (b, H, n, h, D_K), V, b, c cut out of the tail by hand, in the order of section 3.2."""
    h, width = built.hidden, WIDTH if built.basis is None else built.basis.shape[1]
    tail = built.tail(x).view(*x.shape[:2], HEADS, -1).transpose(1, 2)
    end = h * width
    rows = tail[..., :end].reshape(*tail.shape[:-1], h, width)
    if built.basis is not None:
        rows = torch.einsum("bhilr,hrd->bhild", rows, built.basis)
    return rows, tail[..., end : end + h], tail[..., end + h : end + 2 * h], tail[..., -1:]


def naive(built: Qana, query: Tensor, key: Tensor, x: Tensor) -> Tensor:
    """Equation 3.1, all pairs and units at once."""
    rows, out, bias, shift = slices(built, x)
    if built.rope:
        query, key, rows = rotate(query), rotate(key), rotate(rows)
    inner = torch.einsum("bhild,bhjd->bhijl", rows, key) * built.scale + bias.unsqueeze(3)
    hidden = ACTIVATIONS[built.activation](inner)
    network = torch.einsum("bhijl,bhil->bhij", hidden, out) + shift
    alpha = 1.0 if built.alpha is None else built.alpha.view(-1, 1, 1)
    skip = torch.einsum("bhid,bhjd->bhij", query, key) / math.sqrt(WIDTH)
    return alpha * network + skip


def sdpa_of(block: nn.Module, x: Tensor, **options: Any) -> Tensor:
    """Fused attention by a block's own projections."""
    return merged(
        block, F.scaled_dot_product_attention(*streams(block, x), enable_gqa=True, **options)
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"rope": True, "mlp_scale": "sqrt", "gate": "learned", "hidden": 1},
        {"rope": True, "hidden": 8},
        {"basis": 3},
        {"basis": 3, "rope": True},
    ],
    ids=str,
)
def test_the_score_equals_equation_3_1(activation: str, params: dict[str, Any]) -> None:
    built = module(activation=activation, **params)
    given = inputs(keys=5)
    torch.testing.assert_close(built(*given), naive(built, *given), rtol=0, atol=1e-12)


def test_scores_depend_on_positions_through_their_difference() -> None:
    built, (query, key, x) = module(rope=True), inputs(9)
    rows, *rest = built.units(x)

    def at(start: int) -> Tensor:
        turned = rotate(query, start), rotate(key, start), rotate(rows, start)
        return built.score(turned[0], turned[1], (turned[2], *rest))

    torch.testing.assert_close(at(0), built(query, key, x), rtol=0, atol=1e-12)
    for shift in (1, 13):
        torch.testing.assert_close(at(shift), at(0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("init", ["zero_out", "gate"])
def test_the_start_is_fused_attention(activation: str, init: str) -> None:
    gate = {"gate": "learned"} if init == "gate" else {}
    torch.manual_seed(0)
    block = build_attention(qana(activation=activation, init=init, **gate), 32, 4)
    x = torch.randn(2, 9, 32)
    torch.testing.assert_close(block(x), sdpa_of(block, x), rtol=0, atol=1e-6)
    block, x = block.double(), x.double()
    torch.testing.assert_close(block(x), sdpa_of(block, x), rtol=0, atol=1e-14)


def gradients(block: nn.Module, x: Tensor) -> dict[str, Tensor]:
    block.zero_grad()
    block(x).square().sum().backward()
    tail = block.qana_0.tail.weight.grad.view(4, -1, 32)  # type: ignore[union-attr]
    rows, out, bias, shift = tail.split(block.qana_0.parts, dim=1)  # type: ignore[union-attr]
    return {"U": rows, "V": out, "b": bias, "c": shift}


def test_our_start_trains_v_at_once_and_u_from_the_second_step() -> None:
    torch.manual_seed(0)
    block = build_attention(qana(), 32, 4).double()
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    first = gradients(block, x)
    assert first["V"].abs().max() > 1e-4
    assert first["U"].abs().max() < 1e-12
    torch.optim.SGD(block.parameters(), lr=0.1).step()
    assert gradients(block, x)["U"].abs().max() > 0


def test_a_gate_warms_up_over_passes_in_training() -> None:
    built, given = module(gate="warmup"), inputs()
    built.warmup = 4
    skip = given[0] @ given[1].transpose(-2, -1) / math.sqrt(WIDTH)
    whole = naive(built, *given) - skip
    for passes in range(7):
        built.eval()
        torch.testing.assert_close(built(*given) - skip, min(passes / 4, 1.0) * whole)
        built.train()
        built(*given)
    saved = Qana(DIM, HEADS, WIDTH, WIDTH, True, gate="warmup").double()
    saved.warmup = 4
    saved.load_state_dict(built.state_dict())
    torch.testing.assert_close(saved.eval()(*given), built.eval()(*given))


def test_the_figures_of_the_paper_page() -> None:
    """n = 1024, d = 512, H = 8, h = 4: 2.53 times the layer; with D_K = 16, 1.03 times."""
    sizes = {"dim": 512, "heads": 8, "tokens": 1024}
    mha = attention_cost(MECHANISMS["mha"].genome, **sizes)
    whole = attention_cost(MECHANISMS["qana"].genome, **sizes)
    assert round(whole["macs"] / mha["macs"], 2) == 2.53
    short = replace(qana(), projections=replace(qana().projections, qk_dim="1/4"))
    small = attention_cost(short, **sizes)
    assert round(small["macs"] / mha["macs"], 2) == 1.03
    assert small["kv_cache_bytes_per_token"] / mha["kv_cache_bytes_per_token"] == 0.625
