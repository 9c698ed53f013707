"""Maps of tokens' features, shifts, partial rotations, and initial values near the identity."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nas.genome.primitives.positions import Rope, ShortConv, TokenShift
from nas.genome.primitives.transforms import (
    EluPlusOne,
    FeatureSoftmax,
    HeadLinear,
    L2Norm,
    Linear,
    OutputGate,
    RmsNorm,
)
from tests.tensors import check_same, draw, with_gradients

X = draw(2, 4, 7, 6)


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


def shifted(module: nn.Module, x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    (mix,) = module.parameters()
    for t in range(x.shape[2]):
        before = x[:, :, t - 1] if t else torch.zeros_like(x[:, :, 0])
        out[:, :, t] = (1 - mix[:, 0]) * x[:, :, t] + mix[:, 0] * before
    return out


def test_token_shift_equals_the_loop() -> None:
    module = TokenShift(4, 6).double()
    assert torch.equal(module(X), X)
    nn.init.normal_(module.mix)
    x = X.clone().requires_grad_()
    results = (
        with_gradients(f(x), [x, module.mix]) for f in (module, lambda x: shifted(module, x))
    )
    check_same(*results)


def turned(x: Tensor, count: int, base: float) -> Tensor:
    out = x.clone()
    for t in range(x.shape[2]):
        for i in range(count // 2):
            angle = torch.tensor(t * base ** (-2 * i / count)).double()
            a, b = x[:, :, t, i], x[:, :, t, i + count // 2]
            out[:, :, t, i] = a * angle.cos() - b * angle.sin()
            out[:, :, t, i + count // 2] = b * angle.cos() + a * angle.sin()
    return out


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


def test_gates_of_heads_scale_whole_heads() -> None:
    module = OutputGate(dim=5, heads=4, width=6, per="head").double()
    x = draw(2, 7, 5)
    gate = torch.einsum("bnd,hd->bhn", x, module.gate.weight).sigmoid()
    torch.testing.assert_close(module(X, x=x), X * gate[..., None])


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
