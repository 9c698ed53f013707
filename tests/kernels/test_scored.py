"""Scores of pairs in pieces, of every kind: equal to plain operations, and what takes them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nas.kernels.pair_scores import PairScores, Scored, score_pairs
from nas.kernels.pieces import PIECE
from tests.kernels.test_pair_scores import BATCH, HEADS, KEYS, KINDS, QUERIES, given

EVERY = pytest.mark.parametrize("kind", KINDS)


def operands(kind: str, batch: int = BATCH) -> list[Tensor]:
    return given(kind, batch)[1:]


def by_pieces(score: PairScores, *own: Tensor) -> Tensor:
    found: Tensor = Scored.apply(score, *own)
    return found


@EVERY
@pytest.mark.parametrize("limit", [1, KEYS, 2 * KEYS, 2 * QUERIES * KEYS, 10**6])
@pytest.mark.parametrize("gradient", ["dense", "expanded", "transposed"])
def test_pieces_are_the_plain_form_with_its_gradients(
    kind: str, limit: int, gradient: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PIECE, "cpu", limit)
    own, shape = operands(kind), (BATCH, HEADS, QUERIES, KEYS)
    above = {
        "dense": torch.randn(shape, dtype=torch.float64),
        "expanded": torch.ones((), dtype=torch.float64).expand(shape),
        "transposed": torch.randn(BATCH, HEADS, KEYS, QUERIES, dtype=torch.float64).mT,
    }[gradient]
    both = by_pieces(KINDS[kind], *own), KINDS[kind].plain(*own)
    results = [[out, *torch.autograd.grad(out, own, above)] for out in both]
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@EVERY
def test_pieces_have_first_and_second_derivatives(kind: str) -> None:
    own = [
        t.detach()[:1, :1].clone().requires_grad_() if t.dim() > 2 else t for t in operands(kind)
    ]
    assert torch.autograd.gradcheck(lambda *t: by_pieces(KINDS[kind], *t), own)
    assert torch.autograd.gradgradcheck(
        lambda *t: by_pieces(KINDS[kind], *t), own, check_batched_grad=True
    )


@EVERY
def test_pieces_take_transforms(kind: str) -> None:
    """Several operands at once; one sample's gradient each."""
    first, *rest = (t.detach() for t in operands(kind))
    firsts = torch.randn(5, *first.shape, dtype=torch.float64)

    def scores(own: Tensor) -> Tensor:
        return by_pieces(KINDS[kind], own, *rest)

    expected = torch.stack([scores(own) for own in firsts])
    torch.testing.assert_close(torch.vmap(scores)(firsts), expected, rtol=0, atol=1e-12)
    slopes = torch.vmap(torch.func.grad(lambda own: scores(own).square().sum()))(firsts)
    leaf = firsts.clone().requires_grad_()
    (each,) = torch.autograd.grad(sum(scores(own).square().sum() for own in leaf), leaf)
    torch.testing.assert_close(slopes, each, rtol=0, atol=1e-10)


@EVERY
def test_only_wanted_gradients_are_given_and_no_plane_is_remembered(kind: str) -> None:
    own = [t.detach() for t in operands(kind)]
    own[1].requires_grad_()
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = by_pieces(KINDS[kind], *own)
    assert sizes == [t.numel() for t in own]
    out.sum().backward()
    assert [t.grad is not None for t in own] == [n == 1 for n in range(len(own))]


@EVERY
def test_an_export_holds_the_plain_form(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Scores(nn.Module):
        def forward(self, *own: Tensor) -> Tensor:
            return score_pairs(KINDS[kind], *own)

    monkeypatch.setattr(type(KINDS[kind]), "rule", lambda *own: "pieces")
    own = tuple(t.detach() for t in operands(kind))
    assert "Scored" in score_pairs(KINDS[kind], *operands(kind)).grad_fn.name()  # type: ignore[union-attr]
    exported = torch.export.export(Scores(), own)
    calls = [str(n.target) for n in exported.graph.nodes if n.op == "call_function"]
    assert not any("autograd" in call for call in calls)


@pytest.mark.parametrize(
    ("tokens", "width", "dtype", "way"),
    [
        (65, 4, torch.float32, "planes"),
        (400, 4, torch.float32, "pieces"),
        (400, 4, torch.bfloat16, "pieces"),
        (120, 40, torch.float32, "pieces"),
        (120, 40, torch.bfloat16, "planes"),
    ],
)
def test_layers_go_by_pieces_where_pairs_are_many_and_layers_narrow(
    tokens: int, width: int, dtype: torch.dtype, way: str
) -> None:
    left, right = (torch.randn(1, 1, tokens, width, dtype=dtype) for _ in range(2))
    assert KINDS["pair_layers"].rule(left, right) == way


def test_units_of_tanh_are_not_computed_twice() -> None:
    left = torch.randn(8, 4, 65, 16)
    kinds = {name: type(KINDS["hidden_units"])(name) for name in ("gelu", "relu", "silu", "tanh")}
    found = {name: score.rule(left, left) for name, score in kinds.items()}
    assert found == {"gelu": "pieces", "relu": "pieces", "silu": "pieces", "tanh": "planes"}
    assert kinds["gelu"].rule(left[:1, :1], left[:1, :1]) == "planes"
