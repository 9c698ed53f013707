"""Scores that are products of two maps, and what changes scores, against the plainest forms."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nas.genome.primitives import get
from nas.genome.primitives.products import ConvolutionalScore, Cosine, Distance, ScaledDotProduct
from nas.genome.primitives.score_changes import Alibi, KeyBias, Temperature, alibi_slopes
from tests.tensors import draw

QUERY, KEY = draw(2, 3, 5, 4), draw(2, 3, 6, 4, seed=1)


def test_convolutional_score_convolves_both_operands_with_one_kernel() -> None:
    module = ConvolutionalScore(4).double()
    weight, bias = module.conv.weight[:, 0], module.conv.bias

    def mix(x: Tensor) -> Tensor:
        around = F.pad(x, (0, 0, 1, 1))
        taps = [around[:, :, s : s + x.shape[2]] * weight[:, s] for s in range(3)]
        return sum(taps[1:], taps[0]) + bias

    expected = mix(QUERY) @ mix(KEY).transpose(-2, -1)
    torch.testing.assert_close(module(QUERY, KEY), expected)


def test_cosine_is_the_cosine_times_a_factor_of_each_head() -> None:
    module = Cosine(3, 4).double()
    assert torch.equal(module.factor.detach(), torch.full((3,), 2.0).double())
    with torch.no_grad():
        module.factor.copy_(torch.tensor([1.0, -2.0, 3.0]))
    expected = F.cosine_similarity(QUERY.unsqueeze(3), KEY.unsqueeze(2), dim=-1)
    expected = expected * torch.tensor([1.0, -2.0, 3.0]).double().view(3, 1, 1)
    torch.testing.assert_close(module(QUERY, KEY), expected, rtol=0, atol=1e-5)


def test_distance_is_half_the_squared_distance_over_the_scale() -> None:
    scores = Distance(rank=16)(QUERY, KEY)
    for i, j in itertools.product(range(5), range(6)):
        apart = (QUERY[:, :, i] - KEY[:, :, j]).square().sum(-1)
        torch.testing.assert_close(scores[:, :, i, j], -apart / (2 * 4.0))


def test_quadratic_products_expand_the_exponential() -> None:
    product = get("quadratic_product").module
    s = QUERY @ KEY.mT / 4
    torch.testing.assert_close(product(rank=16)(QUERY, KEY), 1 + s + s**2 / 2)
    torch.testing.assert_close(product(rank=16, form="square")(QUERY, KEY), s**2)


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


def test_key_bias_is_a_bias_of_the_queries() -> None:
    """Transformer-XL's (q + u)·k / sqrt(d), and nothing at the start."""
    product, module = ScaledDotProduct(16), KeyBias(3, 4, rank=16).double()
    scores = product(QUERY, KEY)
    assert torch.equal(module(scores, KEY), scores)
    with torch.no_grad():
        module.direction.normal_()
    expected = (QUERY + module.direction[:, None]) @ KEY.transpose(-2, -1) / 4.0
    torch.testing.assert_close(module(scores, KEY), expected)


@pytest.mark.parametrize(
    ("heads", "expected"), [(1, [2**-8]), (8, [2.0**-h for h in range(1, 9)]), (2, [2**-4, 2**-8])]
)
def test_slopes_are_those_of_the_paper(heads: int, expected: list[float]) -> None:
    assert alibi_slopes(heads, torch.zeros(1)).tolist() == pytest.approx(expected)


def test_alibi_takes_a_slope_for_each_step_of_distance() -> None:
    biased = Alibi(8)(torch.zeros(1, 8, 4, 4, dtype=torch.float64))
    assert biased[0, 0, 1].tolist() == [-0.5, 0.0, -0.5, -1.0]
    assert biased[0, 1, 3].tolist() == [-0.75, -0.5, -0.25, 0.0]


def test_alibi_in_16_bits_tells_neighbours_apart() -> None:
    biased = Alibi(8)(torch.zeros(1, 8, 2_000, 2_000, dtype=torch.bfloat16))
    assert biased[0, 7, 1_999, 1_999 - 3 :].tolist() == [-3 / 256, -2 / 256, -1 / 256, 0.0]
