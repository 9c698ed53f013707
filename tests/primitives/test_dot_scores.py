"""Scores that are products of two maps, and the adjustments of scores."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from nas.primitives.convolutional_score import ConvolutionalScore
from nas.primitives.products import Bilinear, Cosine, Distance
from nas.primitives.score_changes import Softcap, Temperature


def tokens(length: int, seed: int, width: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, length, width, generator=generator, dtype=torch.float64)


QUERY, KEY = tokens(5, 0), tokens(6, 1)


def test_bilinear_has_no_scale_and_no_bias() -> None:
    module = Bilinear(4).double()
    expected = torch.einsum("bhiu,wu,bhjw->bhij", QUERY, module.map.weight, KEY)
    torch.testing.assert_close(module(QUERY, KEY), expected)
    assert [name for name, _ in module.named_parameters()] == ["map.weight"]


def test_convolutional_score_convolves_both_operands_with_one_kernel() -> None:
    module = ConvolutionalScore(4).double()
    weight, bias = module.conv.weight[:, 0], module.conv.bias

    def mix(x: Tensor) -> Tensor:
        around = F.pad(x, (0, 0, 1, 1))
        taps = [around[:, :, s : s + x.shape[2]] * weight[:, s] for s in range(3)]
        return sum(taps[1:], taps[0]) + bias

    expected = mix(QUERY) @ mix(KEY).transpose(-2, -1)
    torch.testing.assert_close(module(QUERY, KEY), expected)


def test_convolutional_score_treats_padding_as_an_edge() -> None:
    module = ConvolutionalScore(4).double()
    x = tokens(6, 2)
    mask = (torch.arange(6) < 4).expand(2, 1, 1, 6)
    alone = module(x[:, :, :4], x[:, :, :4])
    torch.testing.assert_close(module(x, x, mask=mask)[:, :, :4, :4], alone)


def test_cosine_is_the_cosine_times_a_factor_of_each_head() -> None:
    module = Cosine(3, 4).double()
    assert torch.equal(module.factor.detach(), torch.full((3,), 2.0).double())
    with torch.no_grad():
        module.factor.copy_(torch.tensor([1.0, -2.0, 3.0]))
    expected = F.cosine_similarity(QUERY.unsqueeze(3), KEY.unsqueeze(2), dim=-1)
    expected = expected * torch.tensor([1.0, -2.0, 3.0]).double().view(3, 1, 1)
    torch.testing.assert_close(module(QUERY, KEY), expected, rtol=0, atol=1e-5)


def test_cosine_of_nothing_is_zero_with_a_bounded_gradient() -> None:
    zero = torch.zeros_like(QUERY, requires_grad=True)
    scores = Cosine(3, 4).double()(zero, KEY)
    assert not scores.any()
    scores.sum().backward()
    assert zero.grad is not None
    assert zero.grad.abs().max() < 1e5


def test_distance_is_half_the_squared_distance_over_the_scale() -> None:
    scores = Distance(rank=16)(QUERY, KEY)
    for i, j in itertools.product(range(5), range(6)):
        apart = (QUERY[:, :, i] - KEY[:, :, j]).square().sum(-1)
        torch.testing.assert_close(scores[:, :, i, j], -apart / (2 * 4.0))


def test_softcap_bounds_and_hardly_touches_small_scores() -> None:
    scores = torch.tensor([-1e4, -0.1, 0.0, 0.1, 1e4, -math.inf], dtype=torch.float64)
    capped = Softcap(cap=20.0)(scores.view(1, 1, 1, 6)).flatten()
    assert capped[0] == -20.0
    assert capped[4] == 20.0
    assert capped[5] == -math.inf
    torch.testing.assert_close(capped[1:4], scores[1:4], rtol=1e-4, atol=0)


def test_temperature_scales_each_head_and_keeps_the_excluded_out() -> None:
    scores = QUERY @ KEY.transpose(-2, -1)
    scores[..., 0] = -math.inf
    module = Temperature(3).double()
    assert torch.equal(module(scores), scores)
    with torch.no_grad():
        module.factor.copy_(torch.tensor([2.0, 0.0, -1.0]))
    scaled = module(scores)
    assert bool((scaled[..., 0] == -math.inf).all())
    factor = torch.tensor([2.0, 0.0, -1.0]).double().view(3, 1, 1)
    torch.testing.assert_close(scaled[..., 1:], scores[..., 1:] * factor)
    torch.softmax(scaled, -1).square().sum().backward()
    assert module.factor.grad is not None
    assert bool(torch.isfinite(module.factor.grad).all())
