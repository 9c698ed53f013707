"""Attention by a network over pairs, in pieces: equal to plain operations, in values and gradients.

Scores alone are checked kind by kind, beside each (hidden units, a query's network, pair layers).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from nas.kernels.hidden_units import UnitScores
from nas.kernels.pair_layers import LayerScores
from nas.kernels.query_network import NetworkScores
from torch import Tensor, nn

from nas.kernels.pair_scores import Attended, PairScores, attend_pairs, plain_attention
from nas.kernels.pieces import PIECE
from nas.primitives.masks import hide

BATCH, HEADS, QUERIES, KEYS, VALUES = 2, 3, 4, 6, 5
KINDS = {
    "hidden_units": UnitScores("gelu"),
    "query_network": NetworkScores(0.5, "silu"),
    "pair_layers": LayerScores(),
}
MASKS = {
    "none": None,
    "padding": (torch.arange(KEYS) < KEYS - 2).expand(BATCH, 1, 1, KEYS),
    "causal": torch.ones(QUERIES, KEYS).tril().bool(),
    "rows": torch.rand(BATCH, 1, QUERIES, KEYS, generator=torch.Generator().manual_seed(0)) > 0.4,
    "heads": torch.rand(HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(1)) > 0.4,
    "blind": (torch.arange(QUERIES) != 1)[:, None].expand(QUERIES, KEYS),
}


def given(kind: str, batch: int = BATCH, **options: Any) -> list[Tensor]:
    """Values, then the operands of a kind of score."""
    torch.manual_seed(0)
    plane = (batch, HEADS)
    shapes: dict[str, list[tuple[int, ...]]] = {
        "hidden_units": [(*plane, QUERIES, 3), (*plane, KEYS, 3), (3,), ()],
        "query_network": [
            *((*plane, QUERIES, 5), (*plane, KEYS, 5), (*plane, QUERIES, 3, 2), (*plane, KEYS, 2)),
            *((*plane, QUERIES, 3), (*plane, QUERIES, 3), (*plane, QUERIES, 1)),
        ],
        "pair_layers": [(*plane, QUERIES, 4), (*plane, KEYS, 4), (2, 4), (2,), (1, 2), (1,)],
    }
    found = [torch.randn(*plane, KEYS, VALUES, dtype=torch.float64)]
    found += [torch.randn(shape, dtype=torch.float64) for shape in shapes[kind]]
    return [t.to(**options).requires_grad_() for t in found]


def by_pieces(score: PairScores, mask: Tensor | None, *own: Tensor) -> Tensor:
    found: Tensor = Attended.apply(score, True, mask, *own)[0]
    return found


def check(kind: str, mask: Tensor | None) -> None:
    """Values and all gradients, those by what softmax does not see too."""
    own = given(kind)
    found = by_pieces(KINDS[kind], mask, *own)
    expected = plain_attention(KINDS[kind], mask, *own)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    above = torch.randn_like(expected).transpose(2, 3).contiguous().transpose(2, 3)
    ours, theirs = (torch.autograd.grad(out, own, above) for out in (found, expected))
    for mine, plain in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("limit", [1, KEYS, 2 * KEYS, 2 * QUERIES * KEYS, 10**6])
def test_pieces_are_the_plain_form_with_its_gradients(
    kind: str, mask: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PIECE, "cpu", limit)
    check(kind, MASKS[mask])


def test_the_plain_form_is_the_equation() -> None:
    """And a query that sees nothing gets zeros in both forms."""
    own = given("hidden_units")
    values, left, right, weight, shift = own
    scores = torch.nn.functional.gelu(left.unsqueeze(3) + right.unsqueeze(2)) @ weight + shift
    for mask in (MASKS["rows"], MASKS["blind"]):
        weights = torch.softmax(hide(scores, mask), dim=-1).nan_to_num(0.0)
        for form in (plain_attention, by_pieces):
            found = form(KINDS["hidden_units"], mask, *own)
            torch.testing.assert_close(found, weights @ values, rtol=0, atol=1e-12)
    assert not by_pieces(KINDS["hidden_units"], MASKS["blind"], *own)[:, :, 1].any()


@pytest.mark.parametrize("kind", ["hidden_units", "query_network"])
def test_pieces_have_first_and_second_derivatives(kind: str) -> None:
    own = [t.detach()[:1, :1].clone().requires_grad_() if t.dim() > 2 else t for t in given(kind)]
    mask = MASKS["causal"]
    assert torch.autograd.gradcheck(lambda *t: by_pieces(KINDS[kind], mask, *t), own)
    assert torch.autograd.gradgradcheck(
        lambda *t: by_pieces(KINDS[kind], mask, *t), own, check_batched_grad=True
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask", ["none", "padding"])
def test_pieces_take_transforms(kind: str, mask: str) -> None:
    """Several operands at once, as when seeds train together; one sample's gradient each."""
    values, first, *rest = (t.detach() for t in given(kind))
    firsts = torch.randn(5, *first.shape, dtype=torch.float64)

    def attend(own: Tensor) -> Tensor:
        return by_pieces(KINDS[kind], MASKS[mask], values, own, *rest)

    expected = torch.stack([attend(own) for own in firsts])
    torch.testing.assert_close(torch.vmap(attend)(firsts), expected, rtol=0, atol=1e-12)
    slopes = torch.vmap(torch.func.grad(lambda own: attend(own).square().sum()))(firsts)
    leaf = firsts.clone().requires_grad_()
    (each,) = torch.autograd.grad(sum(attend(own).square().sum() for own in leaf), leaf)
    torch.testing.assert_close(slopes, each, rtol=0, atol=1e-10)


def test_only_wanted_gradients_are_given() -> None:
    own = [t.detach() for t in given("query_network")]
    own[3].requires_grad_()
    by_pieces(KINDS["query_network"], None, *own).sum().backward()
    assert [t.grad is not None for t in own] == [n == 3 for n in range(len(own))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("autocast", [False, True])
def test_16_bits_are_those_of_plain_operations(kind: str, autocast: bool) -> None:
    """Types as there, and closer to exact numbers than they are, or nearly so."""
    short = given(kind, dtype=torch.bfloat16)
    exact = [t.detach().double().requires_grad_() for t in short]
    expected = plain_attention(KINDS[kind], MASKS["rows"], *exact)
    above = torch.randn_like(expected).bfloat16()
    wanted = torch.autograd.grad(expected, exact, above.double())
    errors = []
    for form in (plain_attention, by_pieces):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            out = form(KINDS[kind], MASKS["rows"], *short)
        assert out.dtype == torch.bfloat16
        found = torch.autograd.grad(out, short, above)
        pairs = zip((out.detach(), *found), (expected.detach(), *wanted), strict=True)
        errors.append(max(float((a.double() - b).abs().max()) for a, b in pairs))
    assert errors[1] <= 1.25 * errors[0]


def test_wide_values_are_multiplied_as_autocast_would() -> None:
    """Values that nothing projects are float32 where all else has 16 bits."""
    values, *operands = given("hidden_units", dtype=torch.bfloat16)
    wide = values.detach().float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        found = by_pieces(KINDS["hidden_units"], None, wide, *operands)
        expected = plain_attention(KINDS["hidden_units"], None, wide, *operands)
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=2**-6, atol=2**-6)
    found.sum().backward()
    assert wide.grad is not None
    assert wide.grad.dtype == torch.float32


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_remembers_the_weights_alone(kind: str) -> None:
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    own = given(kind)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        by_pieces(KINDS[kind], None, *own)
    weights = BATCH * HEADS * QUERIES * KEYS
    assert sorted(sizes) == sorted([weights, *(t.numel() for t in own)])


@pytest.mark.parametrize("is_trained", [True, False])
def test_without_gradients_no_weights_are_made(is_trained: bool) -> None:
    values, *operands = given("pair_layers")
    score = KINDS["pair_layers"]
    weights = Attended.apply(score, is_trained, None, values, *operands)[1]
    assert weights.shape == ((BATCH * HEADS, QUERIES, KEYS) if is_trained else (0,))
    with torch.no_grad():
        found = attend_pairs((score, tuple(operands)), values, None)
        pieced = Attended.apply(score, is_trained, None, values, *operands)[0]
    torch.testing.assert_close(found, pieced, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rule_decides(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, *operands = given(kind)
    for way in ("planes", "pieces"):
        monkeypatch.setattr(type(KINDS[kind]), "rule", lambda *given, way=way: way)
        found = attend_pairs((KINDS[kind], tuple(operands)), values, None)
        assert found.grad_fn is not None
        assert ("Attended" in found.grad_fn.name()) == (way == "pieces")


def test_an_export_holds_the_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    class Attention(nn.Module):
        def forward(self, *own: Tensor) -> Tensor:
            return attend_pairs((KINDS["hidden_units"], own[1:]), own[0], None)

    own = [t.detach() for t in given("hidden_units")]
    monkeypatch.setattr(UnitScores, "rule", lambda *given: "pieces")
    exported = torch.export.export(Attention(), tuple(own))
    calls = [str(n.target) for n in exported.graph.nodes if n.op == "call_function"]
    assert calls.count("aten.addcmul.default") == 3
    assert calls.count("aten.softmax.int") == 1
    assert not any("autograd" in call for call in calls)


def test_second_derivatives_are_those_of_the_forward_passs_precision() -> None:
    """A gradient's gradient is often asked for outside of autocast."""
    for kind, score in KINDS.items():
        found = []
        for form in (plain_attention, by_pieces):
            own = [t.detach().float().requires_grad_() for t in given(kind)]
            with torch.autocast("cpu", torch.bfloat16):
                out = form(score, None, *own)
            (slope,) = torch.autograd.grad(out.float().square().sum(), own[1:2], create_graph=True)
            found.append(torch.autograd.grad(slope.square().sum(), own[1])[0])
        torch.testing.assert_close(found[1], found[0], rtol=0.1, atol=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_no_sequences_are_no_fault(kind: str) -> None:
    own = given(kind, 0)
    found = by_pieces(KINDS[kind], MASKS["causal"], *own)
    assert found.shape == (0, HEADS, QUERIES, VALUES)
    gradients = torch.autograd.grad(found.sum(), own)
    assert [g.shape for g in gradients] == [t.shape for t in own]


def test_a_tensor_without_data_goes_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    values, *operands = given("hidden_units", device="meta")
    monkeypatch.setattr(UnitScores, "largest", 0)
    found = attend_pairs((KINDS["hidden_units"], tuple(operands)), values, None)
    assert found.shape == (*values.shape[:2], QUERIES, VALUES)
