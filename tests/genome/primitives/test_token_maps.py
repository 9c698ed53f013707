"""Transforms, gates, sums, norms and the short convolution, against their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from nas.genome.primitives import get
from nas.genome.primitives.positions import ShortConv
from nas.genome.primitives.transforms import GatedValue, Linear, OutputGate, RmsNorm

X = torch.randn(2, 3, 7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

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
    linear, gated = randomised(Linear(4)), randomised(GatedValue(4))
    assert isinstance(linear, Linear)
    assert isinstance(gated, GatedValue)
    expected = torch.einsum("bhnw,vw->bhnv", X, linear.linear.weight) + linear.linear.bias
    torch.testing.assert_close(linear(X), expected)
    gate = torch.einsum("bhnw,vw->bhnv", X, gated.gate.weight) + gated.gate.bias
    torch.testing.assert_close(gated(X), X / (1 + (-gate).exp()))


def test_output_gate_reads_the_input_for_every_head() -> None:
    module = OutputGate(dim=6, heads=3, width=4, bias=True).double()
    x = torch.randn(2, 7, 6, dtype=torch.float64)
    weight, bias = module.gate.weight.view(3, 4, 6), module.gate.bias.view(3, 1, 4)
    gate = torch.einsum("bnd,hwd->bhnw", x, weight) + bias
    torch.testing.assert_close(module(X, x=x), X * torch.sigmoid(gate))
    assert OutputGate(dim=6, heads=3, width=4).gate.bias is None


def test_rms_norm_equals_its_formula() -> None:
    module = randomised(RmsNorm(4))
    assert isinstance(module, RmsNorm)
    expected = X / (X.square().mean(-1, keepdim=True) + 1e-6).sqrt() * module.gain
    torch.testing.assert_close(module(X), expected)
    half = module.float()(300 * X.half())
    assert half.dtype == torch.float16
    assert bool(torch.isfinite(half).all())


def slow_convolution(module: ShortConv, x: Tensor, kernel: int, before: int) -> Tensor:
    out = torch.zeros_like(x)
    weight = module.conv.weight.view(3, 4, kernel)
    assert module.conv.bias is not None
    for t in range(x.shape[2]):
        for s in range(kernel):
            if 0 <= t - before + s < x.shape[2]:
                out[:, :, t] += weight[..., s] * x[:, :, t - before + s]
    return out + module.conv.bias.view(3, 1, 4)


@pytest.mark.parametrize(("kernel", "causal"), [(2, False), (3, True), (9, False)])
def test_short_conv_equals_the_slow_loop(kernel: int, causal: bool) -> None:
    module = ShortConv(heads=3, width=4, kernel=kernel, causal=causal).double()
    before = kernel - 1 if causal else (kernel - 1) // 2
    torch.testing.assert_close(module(X), slow_convolution(module, X, kernel, before))
