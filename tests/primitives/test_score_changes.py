"""Biases of keys and of distances, and scores that are weights, against the plainest forms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nas.primitives.alibi import Alibi, alibi_slopes
from nas.primitives.pointwise_weights import SoftmaxFree
from nas.primitives.products import ScaledDotProduct
from nas.primitives.score_changes import KeyBias


def tokens(length: int, seed: int, width: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, length, width, generator=generator, dtype=torch.float64)


QUERY, KEY = tokens(5, 0), tokens(6, 1)


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


def test_alibi_of_a_part_counts_from_the_first_key() -> None:
    scores = tokens(9, 2, width=9)
    whole, part = Alibi(3)(scores), Alibi(3)(scores[:, :, 4:7], start=4)
    assert torch.equal(part, whole[:, :, 4:7])


def test_alibi_in_16_bits_tells_neighbours_apart() -> None:
    biased = Alibi(8)(torch.zeros(1, 8, 2_000, 2_000, dtype=torch.bfloat16))
    assert biased[0, 7, 1_999, 1_999 - 3 :].tolist() == [-3 / 256, -2 / 256, -1 / 256, 0.0]


def test_softmax_free_weights_are_scores_over_the_number_of_keys() -> None:
    scores = tokens(4, 3, width=4)
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    mask[2] = False
    weights = SoftmaxFree()(scores, mask)
    torch.testing.assert_close(weights[:, :, 1, :2], scores[:, :, 1, :2] / 2)
    assert not weights[:, :, 1, 2:].any()
    assert not weights[:, :, 2].any()
    torch.testing.assert_close(SoftmaxFree()(scores), scores / 4)
