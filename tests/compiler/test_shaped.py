"""Scores that are changed after their products: every way to attend with them is the same."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from nas.compiler.flex import Shaping, flexible_attention
from nas.compiler.shaped import explicit_attention, shaped_attention, sloped_attention
from nas.kernels import using
from nas.primitives.alibi import alibi_slopes

if TYPE_CHECKING:
    from collections.abc import Callable

WEIGHTS = ("softmax", "sigmoid", "sigmoid_over_length")
N = 40


def operands(heads: int, groups: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Query, key, values, the bias of each key and the slopes, each asking for its gradient."""
    torch.manual_seed(0)
    shapes = ((2, heads, N, 6), (2, groups, N, 6), (2, groups, N, 5), (2, heads, N, 1))
    drawn = [torch.randn(shape, dtype=dtype) for shape in shapes]
    return [x.requires_grad_() for x in (*drawn, alibi_slopes(heads, drawn[0]))]


MASKS = ("none", "padding", "rows", "shared")


def mask_of(kind: str) -> Tensor | None:
    if kind == "none":
        return None
    if kind == "padding":
        return (torch.arange(N) < N - 3).expand(2, 1, 1, N)
    if kind == "shared":
        return torch.rand(N, N) > 0.3
    allowed = torch.rand(2, 1, N, N) > 0.3
    allowed[1, 0, 3] = False  # a query that sees nothing gets zeros
    return allowed


def results(found: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    weight = torch.linspace(-1.0, 1.0, found.numel(), dtype=found.dtype).view_as(found)
    gradients = torch.autograd.grad((found * weight).sum(), leaves, allow_unused=True)
    return [found, *(torch.zeros(()) if g is None else g for g in gradients)]


def check_same(first: list[Tensor], second: list[Tensor]) -> None:
    for ours, theirs in zip(first, second, strict=True):
        assert bool(torch.isfinite(ours).all())
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.fixture
def _flex_with_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch compiles no backward pass of FlexAttention for a CPU, and so refuses the eager one."""
    torch._dynamo.reset()
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *x: None)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.usefixtures("_flex_with_gradients")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_flex_is_explicit_attention(weights: str, kind: str, is_causal: bool) -> None:
    query, key, values, bias, slopes = leaves = operands(4, 2)
    mask = mask_of(kind)
    for cap, own_slopes, own_bias in ((None, slopes, None), (2.0, slopes, bias), (2.0, None, None)):
        shaping = Shaping(cap, own_slopes, weights=weights)
        given = (query, key, values, mask, 0.4, is_causal, own_bias, shaping)
        torch._dynamo.reset()
        ours = results(flexible_attention(*given), leaves)
        check_same(ours, results(explicit_attention(*given), leaves))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", MASKS)
def test_slopes_by_the_fused_kernel_are_explicit_attention(kind: str, is_causal: bool) -> None:
    query, key, values, bias, slopes = leaves = operands(4, 2)
    mask = mask_of(kind)
    for own_bias in (None, bias):
        rest = (query, key, values, mask, 0.4, is_causal, own_bias)
        ours = results(sloped_attention(*rest, slopes, 0), leaves)
        theirs = results(explicit_attention(*rest, Shaping(slopes=slopes)), leaves)
        check_same(ours, theirs)


@pytest.mark.parametrize("start", [0, 7])
def test_parts_count_from_the_first_key(start: int) -> None:
    query, key, values, _, slopes = leaves = operands(4, 4)
    whole = shaped_attention(query, key, values, None, 0.4, slopes=slopes)[:, :, start : start + 9]
    some = query[:, :, start : start + 9]
    part = shaped_attention(some, key, values, None, 0.4, slopes=slopes, start=start)
    check_same(results(part, leaves), results(whole, leaves))


def chosen(found: str, **given: Any) -> list[str]:
    """The ways that are taken on a CPU where a measurement says ``found``."""
    taken: list[str] = []
    watched: dict[str, Callable[..., Tensor]] = {
        "flex": flexible_attention,
        "explicit": explicit_attention,
        "sloped": sloped_attention,
    }
    patch = pytest.MonkeyPatch()
    for name, function in watched.items():
        target = f"nas.compiler.shaped.{function.__name__}"

        def watch(*rest: Any, name: str = name) -> Tensor:
            taken.append(name)
            return torch.zeros(())

        patch.setattr(target, watch)
    query, key, values, _, slopes = operands(2, 2, torch.float32)
    rest = {name: slopes if name == "slopes" else value for name, value in given.items()}
    place = f"shaped_attention forward_backward cpu float32 {N}"
    with using({place: {6: found}} if found else {}):
        shaped_attention.__wrapped__(query, key, values, None, **rest)  # type: ignore[attr-defined]
    patch.undo()
    return taken


@pytest.mark.parametrize(
    ("found", "given", "way"),
    [
        ("", {"slopes": True}, "sloped"),
        ("", {"cap": 2.0}, "explicit"),
        ("", {"weights": "sigmoid"}, "explicit"),
        ("explicit", {"slopes": True}, "explicit"),
        ("flex", {"slopes": True}, "flex"),
        ("flex", {"cap": 2.0}, "flex"),
        ("sloped", {"cap": 2.0, "slopes": True}, "explicit"),
    ],
)
def test_a_way_is_the_one_measured_or_the_rules(
    found: str, given: dict[str, Any], way: str
) -> None:
    assert chosen(found, **given) == [way]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_causal_slopes_are_exact_in_16_bits(dtype: torch.dtype) -> None:
    """At place 1,000 neighbours differ by one slope, which 16 bits of 1,000 slopes do not hold."""
    n = 1_000
    query, key = (torch.zeros(1, 4, n, 8, dtype=dtype) for _ in range(2))
    values = torch.randn(1, 4, n, 8).to(dtype)
    slopes = alibi_slopes(4, query)
    ours = sloped_attention(query, key, values, None, 1.0, True, None, slopes, 0)
    wide = (x.float() for x in (query, key, values))
    theirs = explicit_attention(*wide, None, 1.0, True, None, Shaping(slopes=slopes))
    torch.testing.assert_close(ours.float(), theirs, rtol=0.02, atol=0.02)


@pytest.mark.gpu
@pytest.mark.parametrize(("weights", "cap"), list(itertools.product(WEIGHTS, (None, 5.0))))
def test_flex_on_a_gpu_is_explicit_attention(weights: str, cap: float | None) -> None:
    leaves = [x.detach().float().cuda().requires_grad_() for x in operands(4, 2)]
    query, key, values, bias, slopes = leaves
    for is_causal, kind in itertools.product((False, True), MASKS):
        mask = mask_of(kind)
        mask = mask if mask is None else mask.cuda()
        shaping = Shaping(cap, slopes, weights=weights)
        given = (query, key, values, mask, 0.4, is_causal, bias, shaping)
        ours = results(flexible_attention(*given), leaves)
        theirs = results(explicit_attention(*given), leaves)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)
