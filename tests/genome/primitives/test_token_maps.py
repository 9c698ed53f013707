"""Maps of tokens against their formulas: transforms, gates, norms, convolutions and rotations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nas.genome.primitives import get
from nas.genome.primitives.positions import Rope, ShortConv, TokenShift
from nas.genome.primitives.transforms import (
    EluPlusOne,
    FeatureSoftmax,
    GatedValue,
    HeadLinear,
    L2Norm,
    Linear,
    OutputGate,
    RmsNorm,
)
from tests.tensors import check_same, draw, turned, with_gradients

X = draw(2, 4, 7, 6)
FORMULAS = {
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "relu": lambda x: x * (x > 0),
    "tanh": lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_activation_equals_its_formula(name: str) -> None:
    torch.testing.assert_close(get(name).module()(X), FORMULAS[name](X))


def randomised(module: nn.Module) -> nn.Module:
    module = module.double()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def test_linear_and_gated_value_share_their_map_over_heads() -> None:
    linear, gated = randomised(Linear(6)), randomised(GatedValue(6))
    expected = torch.einsum("bhnw,vw->bhnv", X, linear.linear.weight) + linear.linear.bias
    torch.testing.assert_close(linear(X), expected)
    gate = torch.einsum("bhnw,vw->bhnv", X, gated.gate.weight) + gated.gate.bias
    torch.testing.assert_close(gated(X), X / (1 + (-gate).exp()))


def test_output_gates_read_the_input() -> None:
    """For each feature of a head, or for whole heads."""
    module = OutputGate(dim=5, heads=4, width=6, bias=True).double()
    x = draw(2, 7, 5)
    weight, bias = module.gate.weight.view(4, 6, 5), module.gate.bias.view(4, 1, 6)
    gate = torch.einsum("bnd,hwd->bhnw", x, weight) + bias
    torch.testing.assert_close(module(X, x=x), X * torch.sigmoid(gate))
    module = OutputGate(dim=5, heads=4, width=6, per="head").double()
    gate = torch.einsum("bnd,hd->bhn", x, module.gate.weight).sigmoid()
    torch.testing.assert_close(module(X, x=x), X * gate[..., None])


@pytest.mark.parametrize(("kernel", "causal"), [(2, False), (3, True), (9, False)])
def test_short_conv_equals_the_sum_of_its_taps(kernel: int, causal: bool) -> None:
    module = ShortConv(heads=4, width=6, kernel=kernel, causal=causal).double()
    before = kernel - 1 if causal else (kernel - 1) // 2
    weight, bias = module.conv.weight.view(4, 1, 6, kernel), module.conv.bias.view(4, 1, 6)
    around = F.pad(X, (0, 0, before, kernel - 1 - before))
    taps = (weight[..., s] * around[:, :, s : s + X.shape[2]] for s in range(kernel))
    torch.testing.assert_close(module(X), sum(taps, bias))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_l2_norm_of_16_bits_neither_overflows_nor_rounds_to_zero(dtype: torch.dtype) -> None:
    for size in (1e-2, 3e4):
        unit = L2Norm()((size * X / X.abs().max()).to(dtype))
        torch.testing.assert_close(unit.double(), L2Norm()(X), rtol=0.02, atol=0.01)


def test_positive_features_equal_their_formulas() -> None:
    torch.testing.assert_close(EluPlusOne()(X), torch.where(X > 0, X + 1, X.exp()))
    torch.testing.assert_close(FeatureSoftmax()(X), X.exp() / X.exp().sum(-1, keepdim=True))
    small = EluPlusOne()(torch.tensor([[[[-9.0, -20.0]]]], dtype=torch.bfloat16))
    expected = torch.tensor([-9.0, -20.0]).exp()
    torch.testing.assert_close(small.float().flatten(), expected, rtol=0.01, atol=0)
    assert bool((FeatureSoftmax()(1e4 * X) >= 0).all())


def test_head_linear_has_a_matrix_for_each_head() -> None:
    module = HeadLinear(4, 6).double()
    torch.testing.assert_close(module(X), torch.einsum("hvw,bhnw->bhnv", module.weight, X))
    bound = HeadLinear(3, 16).weight.abs().max().item()
    assert 0.2 < bound <= 0.25


def test_token_shift_mixes_each_token_with_the_previous_one() -> None:
    module = TokenShift(4, 6).double()
    assert torch.equal(module(X), X)
    nn.init.normal_(module.mix)
    x = X.clone().requires_grad_()
    previous = F.pad(x, (0, 0, 1, 0))[:, :, :-1]
    expected = (1 - module.mix) * x + module.mix * previous
    check_same(*(with_gradients(out, [x, module.mix]) for out in (module(x), expected)))


SHARES = ((8, "all", 8), (8, "1/2", 4), (8, "1/4", 2), (7, "1/2", 4), (3, "1/4", 2), (20, "1/4", 4))


@pytest.mark.parametrize(("width", "share", "count"), SHARES)
@pytest.mark.parametrize("base", [10000.0, 100.0])
def test_rope_rotates_a_share_of_the_features(
    width: int, share: str, count: int, base: float
) -> None:
    x = draw(2, 3, 5, width)
    module = Rope(width, share=share, base=base)
    torch.testing.assert_close(module(x), turned(x, count, base))
    torch.testing.assert_close(module(x[:, :, 2:], start=2), module(x)[:, :, 2:])
    torch.testing.assert_close(module(x).norm(dim=-1), x.norm(dim=-1))


@pytest.mark.parametrize("heads", [4, 3, 1])
def test_rms_norm_of_two_heads_normalises_them_together(heads: int) -> None:
    module, x = RmsNorm(width=6, span=2).double(), X[:, :heads]
    nn.init.normal_(module.gain)
    expected = torch.zeros_like(x)
    for first in range(0, heads, 2):
        pair = x[:, first : first + 2].transpose(1, 2).flatten(2)
        normed = pair / (pair.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        normed = normed * module.gain[: pair.shape[-1]]
        expected[:, first : first + 2] = normed.unflatten(2, (-1, 6)).transpose(1, 2)
    torch.testing.assert_close(module(x), expected)
    assert bool(torch.isfinite(module.float()(300 * x.half())).all())


IDENTITIES = {
    "linear": Linear(6, init="identity"),
    "causal": ShortConv(4, 6, kernel=4, init="identity"),
    "centred": ShortConv(4, 6, kernel=5, causal=False, init="identity"),
    "even": ShortConv(4, 6, kernel=4, causal=False, init="identity"),
}


@pytest.mark.parametrize("case", IDENTITIES)
def test_init_identity_starts_as_the_identity_and_trains(case: str) -> None:
    module = IDENTITIES[case].double()
    torch.testing.assert_close(module(X), X)
    module(X).square().sum().backward()
    assert all(bool(p.grad is not None and p.grad.any()) for p in module.parameters())
