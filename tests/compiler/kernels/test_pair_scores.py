"""What goes piece by piece, scores by a network and sparse weights: equal to plain operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from nas.compiler.kernels import TILE_NUMBERS
from nas.compiler.kernels.normalisers import Threshold
from nas.compiler.kernels.pair_scores import fast_sum_layers, fast_sum_units, sum_pairs
from nas.genome.primitives.neural_scores import sum_layers, sum_units
from nas.genome.primitives.normalisers import threshold_weights
from tests.tensors import ACTIVATIONS

BATCH, HEADS, QUERIES, KEYS = 2, 3, 4, 7
FORCE = "nas.compiler.kernels.pair_scores.goes_by_pieces"


def network(bias: Tensor, keys: Tensor, rows: Tensor, out: Tensor, shift: Tensor) -> Tensor:
    """QANA's units, plainly."""
    inner = torch.einsum("bhqmw,bhkw->bhqmk", rows, keys) + bias.unsqueeze(-1)
    return torch.einsum("bhqm,bhqmk->bhqk", out, F.silu(inner)) + shift


def units(activation: str) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    return lambda *own: fast_sum_units(*own, activation), lambda *own: sum_units(*own, activation)


# By kind of score its form in pieces, its plain form and its operands' shapes after (b, h); those
# without a query or a key are shared.
QK = ("q", 3), ("k", 3)
KINDS: dict[str, tuple[Any, Any, tuple[tuple[Any, ...], ...]]] = {
    "network": (
        lambda *own: sum_pairs(*own, "silu"),
        network,
        (("q", 3), ("k", 2), ("q", 3, 2), ("q", 3), ("q", 1)),
    ),
    "layers": (fast_sum_layers, sum_layers, (*QK, (2, 3), (2,), (1, 2), (1,))),
} | {name: (*units(name), (*QK, (3,), ())) for name in ACTIVATIONS}
SPARSE = {
    f"power_{power}": (
        lambda z, power=power: Threshold.apply(z, power),
        lambda z, power=power: threshold_weights(z, None, power),
        (("q", KEYS),),
    )
    for power in (1, 2)
}
NETWORKS = pytest.mark.parametrize("kind", list(KINDS))
KINDS |= SPARSE
EVERY = pytest.mark.parametrize("kind", KINDS)
LENGTHS = {"q": (BATCH, HEADS, QUERIES), "k": (BATCH, HEADS, KEYS)}


@pytest.fixture(autouse=True)
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FORCE, lambda *given: True)


def operands(kind: str, **options: Any) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = [(*LENGTHS[s[0]], *s[1:]) if s and s[0] in LENGTHS else s for s in KINDS[kind][2]]
    drawn = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    return [t.to(**options).requires_grad_() for t in drawn]


@EVERY
@pytest.mark.parametrize("limit", [1, 2 * KEYS, 10**6])
@pytest.mark.parametrize("gradient", ["expanded", "transposed"])
def test_tiles_equal_the_primitive_with_gradients(
    kind: str, limit: int, gradient: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TILE_NUMBERS, "cpu", limit)
    own = operands(kind)
    above = {
        "expanded": torch.ones((), dtype=torch.float64).expand(BATCH, HEADS, QUERIES, KEYS),
        "transposed": torch.randn(BATCH, HEADS, KEYS, QUERIES, dtype=torch.float64).mT,
    }[gradient]
    results = [
        [out := form(*own), *torch.autograd.grad(out, own, above)] for form in KINDS[kind][:2]
    ]
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@EVERY
def test_gradients_under_a_checkpoint_equal_those_without(kind: str) -> None:
    """A checkpoint lets each function read its saved tensors once."""
    form, own = KINDS[kind][0], operands(kind)
    recomputed = checkpoint(form, *own, use_reentrant=False)
    expected = torch.autograd.grad(form(*own).square().sum(), own)
    for ours, theirs in zip(
        torch.autograd.grad(recomputed.square().sum(), own), expected, strict=True
    ):
        assert torch.equal(ours, theirs)


@EVERY
def test_second_derivatives_raise_an_error(kind: str) -> None:
    own = operands(kind)
    (slope,) = torch.autograd.grad(KINDS[kind][0](*own).square().sum(), own[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@NETWORKS
@pytest.mark.parametrize("autocast", [False, True])
def test_sums_of_16_bit_units_are_rounded_once(kind: str, autocast: bool) -> None:
    short = operands(kind, dtype=torch.bfloat16)
    exact = [t.detach().double().requires_grad_() for t in short]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        scores = KINDS[kind][0](*short)
    assert scores.dtype == torch.bfloat16
    scores.sum().backward()
    expected = KINDS[kind][1](*exact)
    expected.sum().backward()
    torch.testing.assert_close(scores, expected.bfloat16(), rtol=2**-7, atol=1e-5)
    for ours, theirs in zip(short, exact, strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad.bfloat16(), rtol=2**-6, atol=1e-5)


@NETWORKS
def test_no_tensor_of_all_pairs_is_saved_for_the_backward_pass(kind: str) -> None:
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        KINDS[kind][0](*operands(kind, dtype=torch.float64))
    assert max(sizes) < BATCH * HEADS * QUERIES * KEYS


@EVERY
def test_an_empty_batch_has_gradients(kind: str) -> None:
    own = [t[:0].detach().requires_grad_() if t.dim() > 3 else t for t in operands(kind)]
    found = KINDS[kind][0](*own)
    assert found.shape == (0, HEADS, QUERIES, KEYS)
    gradients = torch.autograd.grad(found.sum(), own)
    assert [g.shape for g in gradients] == [t.shape for t in own]
