"""Scores that are changed after their products: every way to attend with them is the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nas.compiler.kernels import shaped
from nas.compiler.kernels.shaped import shaped_attention, sloped_attention
from nas.genome.primitives.score_changes import alibi_slopes
from tests.tensors import check_same, mask_of, with_gradients

WEIGHTS = ("softmax", "sigmoid", "sigmoid_over_length")
N = 40


def operands(heads: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Query, key, values, the bias of each key and the slopes, each asking for its gradient."""
    torch.manual_seed(0)
    shapes = ((2, heads, N, 6), (2, heads, N, 6), (2, heads, N, 6), (2, heads, N, 1))
    drawn = [torch.randn(shape, dtype=dtype) for shape in shapes]
    return [x.requires_grad_() for x in (*drawn, alibi_slopes(heads, drawn[0]))]


MASKS = ("none", "padding", "rows", "shared")


@pytest.fixture
def _explicit(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fused kernel: a score and a weight of each pair."""
    monkeypatch.setattr(shaped, "is_fused", lambda *given: False)


@pytest.mark.usefixtures("_explicit")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_shaped_attention_equals_explicit_attention(
    weights: str, kind: str, is_causal: bool
) -> None:
    query, key, values, bias, slopes = leaves = operands(4)
    given = mask_of(kind, N)
    seen = torch.ones(N, N, dtype=torch.bool) if given is None else given
    seen = seen.expand(2, 1, N, N)
    seen = seen.tril() if is_causal else seen
    count = seen.sum(-1, keepdim=True).clamp(min=1).double()
    places = torch.arange(N)
    away = (places[:, None] - places).abs()
    for cap, own_slopes, own_bias in ((None, slopes, None), (2.0, slopes, bias), (2.0, None, None)):
        scores = 0.4 * query @ key.mT
        scores = scores if own_bias is None else scores + own_bias.mT
        scores = scores if cap is None else cap * torch.tanh(scores / cap)
        scores = scores if own_slopes is None else scores - own_slopes.view(-1, 1, 1) * away
        if weights == "softmax":
            whole = scores.masked_fill(~seen, -1e300).softmax(-1)
        else:
            whole = (scores - (count.log() if weights != "sigmoid" else 0.0)).sigmoid()
        expected = whole.masked_fill(~seen, 0.0) @ values
        rest = (query, key, values, given, 0.4, is_causal, own_bias, cap, own_slopes)
        ours = shaped_attention(*rest, weights=weights)
        check_same(with_gradients(ours, leaves), with_gradients(expected, leaves))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("others", ["none", "slopes", "bias", "cap"])
def test_sums_of_gates_are_subtracted_by_their_distance(
    kind: str, weights: str, others: str, is_causal: bool
) -> None:
    query, key, values, bias, slopes = leaves = operands(4)
    sums = -bias.abs().cumsum(dim=2)
    given = mask_of(kind, N)
    seen = torch.ones(N, N, dtype=torch.bool) if given is None else given
    seen = seen.expand(2, 1, N, N)
    seen = seen.tril() if is_causal else seen
    places = torch.arange(N)
    scores = 0.4 * query @ key.mT
    scores = scores + bias.mT if others == "bias" else scores
    scores = 2.0 * torch.tanh(scores / 2.0) if others == "cap" else scores
    away = (places[:, None] - places).abs()
    scores = scores - slopes.view(-1, 1, 1) * away if others == "slopes" else scores
    scores = scores - (sums - sums.mT).abs()
    if weights == "softmax":
        whole = scores.masked_fill(~seen, -1e300).softmax(-1)
    else:
        count = seen.sum(-1, keepdim=True).clamp(min=1).double()
        whole = (scores - (count.log() if weights != "sigmoid" else 0.0)).sigmoid()
    expected = whole.masked_fill(~seen, 0.0) @ values
    ours = shaped_attention(
        *(query, key, values, given, 0.4, is_causal),
        bias=bias if others == "bias" else None,
        cap=2.0 if others == "cap" else None,
        slopes=slopes if others == "slopes" else None,
        decay=(sums, sums),
        weights=weights,
    )
    check_same(with_gradients(ours, leaves), with_gradients(expected, leaves))


@pytest.mark.usefixtures("_explicit")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", MASKS)
def test_slopes_by_the_fused_kernel_are_explicit_attention(kind: str, is_causal: bool) -> None:
    query, key, values, bias, slopes = leaves = operands(4)
    mask = mask_of(kind, N)
    for own_bias in (None, bias):
        rest = (query, key, values, mask, 0.4, is_causal, own_bias)
        ours = with_gradients(sloped_attention(*rest, slopes, 0), leaves)
        theirs = with_gradients(shaped_attention(*rest, slopes=slopes), leaves)
        check_same(ours, theirs)


@pytest.mark.parametrize("start", [0, 7])
def test_parts_count_from_the_first_key(start: int) -> None:
    query, key, values, _, slopes = leaves = operands(4)
    whole = shaped_attention(query, key, values, None, 0.4, slopes=slopes)[:, :, start : start + 9]
    some = query[:, :, start : start + 9]
    part = shaped_attention(some, key, values, None, 0.4, slopes=slopes, start=start)
    check_same(with_gradients(part, leaves), with_gradients(whole, leaves))


@pytest.mark.parametrize(
    ("given", "is_fused"),
    [
        ({"slopes": True}, True),
        ({"cap": 2.0, "slopes": True}, False),
        ({"weights": "sigmoid"}, False),
    ],
)
def test_only_slopes_without_cap_use_the_fused_kernel(
    given: dict[str, Any], is_fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    fused = shaped.sloped_attention
    monkeypatch.setattr(shaped, "sloped_attention", lambda *a: taken.append(True) or fused(*a))
    query, key, values, _, slopes = operands(2, torch.float32)
    rest = {name: slopes if name == "slopes" else value for name, value in given.items()}
    shaped_attention(query, key, values, None, **rest)
    assert bool(taken) == is_fused


@pytest.mark.usefixtures("_explicit")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_causal_slopes_are_exact_in_16_bits(dtype: torch.dtype) -> None:
    """At place 1,000 neighbours differ by one slope, which 16 bits of 1,000 slopes do not hold."""
    n = 1_000
    query, key = (torch.zeros(1, 4, n, 8, dtype=dtype) for _ in range(2))
    values = torch.randn(1, 4, n, 8).to(dtype)
    slopes = alibi_slopes(4, query)
    ours = sloped_attention(query, key, values, None, 1.0, True, None, slopes, 0)
    wide = (x.float() for x in (query, key, values))
    theirs = shaped_attention(*wide, None, 1.0, True, None, slopes=slopes)
    torch.testing.assert_close(ours.float(), theirs, rtol=0.02, atol=0.02)
