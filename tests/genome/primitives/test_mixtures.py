"""Mixtures of heads, weights and nearby keys, blocks of keys, and projections off own values."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from nas.genome import Visibility
from nas.genome.primitives import get
from nas.genome.primitives.products import ExcludeValue
from nas.genome.primitives.score_changes import HeadDifference, KeyConv, TalkingHeads
from nas.testing.cases import causal
from tests.compiler.test_compiler import check_equal
from tests.genome.test_algebra import scored
from tests.tensors import check_same, draw, with_gradients


def pair_differences(module: nn.Module, weights: Tensor) -> Tensor:
    out = torch.zeros_like(weights)
    (factor,) = module.parameters()
    for head in range(weights.shape[1]):
        first = head // 2 * 2
        out[:, head] = weights[:, first] - factor[head // 2] * weights[:, first + 1]
    return out


def mixed_heads(module: nn.Module, scores: Tensor) -> Tensor:
    (mix,) = module.parameters()
    heads = range(scores.shape[1])
    return torch.stack([sum(mix[h, g] * scores[:, g] for g in heads) for h in heads], 1)


def convolved(module: nn.Module, scores: Tensor, mask: Tensor | None) -> Tensor:
    """As in the formula, one tap and one key at a time."""
    visible = torch.ones_like(scores).bool() if mask is None else mask.expand(scores.shape)
    out = torch.zeros_like(scores)
    kernel = module.conv.weight.shape[-1]
    for key in range(scores.shape[-1]):
        for s in range(min(kernel, key + 1)):
            weight = module.conv.weight[:, 0, 0, kernel - 1 - s].view(-1, 1)
            read = torch.where(visible[..., key - s], scores[..., key - s], 0.0)
            out[..., key] = out[..., key] + weight * read
    return out


@pytest.mark.parametrize("kind", ["none", "causal", "padding"])
def test_mixtures_and_their_gradients_equal_their_loops(kind: str) -> None:
    mask = {"none": None, "causal": causal(9), "padding": (torch.arange(9) > 2).view(1, 1, 1, 9)}
    z = draw(2, 4, 9, 9).requires_grad_()
    for module, loop in ((TalkingHeads(4), mixed_heads), (HeadDifference(4), pair_differences)):
        module = module.double()
        nn.init.normal_(next(module.parameters()))
        leaves = [z, *module.parameters()]
        check_same(with_gradients(module(z), leaves), with_gradients(loop(module, z), leaves))
    conv = KeyConv(4, kernel=4).double()
    nn.init.normal_(conv.conv.weight)
    results = conv(z, mask=mask[kind]), convolved(conv, z, mask[kind])
    check_same(*(with_gradients(result, [z, conv.conv.weight]) for result in results))


def test_mixtures_start_as_published() -> None:
    z = draw(2, 4, 9, 9)
    torch.testing.assert_close(TalkingHeads(4).double()(z), z)
    torch.testing.assert_close(KeyConv(4).double()(z), z)
    torch.testing.assert_close(HeadDifference(4).double()(z)[:, 3], z[:, 2] - 0.8 * z[:, 3])
    odd = HeadDifference(3).double()(z[:, :3])
    torch.testing.assert_close(odd[:, 1:], torch.stack((odd[:, 0], z[:, 2]), 1))


def test_excluded_scores_count_as_zero_in_other_heads() -> None:
    z, module = draw(1, 2, 3, 3), TalkingHeads(2).double()
    nn.init.normal_(module.mix)
    z[0, 0, 1, 2] = -math.inf
    out = module(z)
    assert out[0, 0, 1, 2] == -math.inf
    torch.testing.assert_close(out[0, 1, 1, 2], module.mix[1, 1] * z[0, 1, 1, 2])


@pytest.mark.parametrize("seen", [Visibility(), Visibility(3, 2)])
@pytest.mark.parametrize("op", ["key_conv", "talking_heads"])
def test_mixed_scores_run_in_windows(op: str, seen: Visibility) -> None:
    found = replace(scored((op,), ("softmax",), kv_heads="1/4"), visibility=seen)
    check_equal(found, 150, {"is_causal": True}, {})


def test_difference_of_two_maps_has_a_factor_of_each_head() -> None:
    first, second = draw(2, 4, 9, 9), draw(2, 4, 9, 9, seed=1)
    module = get("difference").module(heads=4).double()
    nn.init.normal_(module.factor)
    expected = first - torch.einsum("h,bhqk->bhqk", module.factor, second)
    torch.testing.assert_close(module(first, second), expected)


def test_excluded_values_have_no_part_in_the_result() -> None:
    tokens, own = draw(2, 3, 7, 4), draw(2, 3, 7, 4, seed=1)
    rest = ExcludeValue()(tokens, own)
    share = (tokens * own).sum(-1, keepdim=True) / own.square().sum(-1, keepdim=True)
    torch.testing.assert_close(rest, tokens - share * own)
    torch.testing.assert_close((rest * own).sum(-1), torch.zeros(2, 3, 7).double())
