"""Two hidden layers over pairs: plain, fast, their gradients, and who takes which."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.kernels.pair_layers import LayerScores
from nas.kernels.pair_scores import Scored, score_pairs
from nas.kernels.pieces import PIECE
from nas.primitives.neural_attention_authors import sum_layers

QUERIES, KEYS, FIRST, SECOND = 4, 6, 5, 3


def by_pieces(*given: Tensor) -> Tensor:
    found: Tensor = Scored.apply(LayerScores(), *given)
    return found


def by_choice(*given: Tensor) -> Tensor:
    return score_pairs(LayerScores(), *given)


def operands(heads: int = 3, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Left, right, the second layer and its bias, the third and its own."""
    torch.manual_seed(0)
    shapes = [(2, heads, QUERIES, FIRST), (2, heads, KEYS, FIRST)]
    shapes += [(SECOND, FIRST), (SECOND,), (1, SECOND), (1,)]
    return [torch.randn(*shape, dtype=torch.float64).to(dtype) for shape in shapes]


def values_and_gradients(form: Callable[..., Tensor], above: Tensor | None = None) -> list[Tensor]:
    leaves = [t.requires_grad_() for t in operands()]
    scores = form(*leaves)
    above = torch.randn_like(scores, requires_grad=False) if above is None else above
    return [scores, *torch.autograd.grad(scores, leaves, above)]


def check_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected) == 7
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_both_forms_are_the_network_pair_by_pair() -> None:
    left, right, second, bias, third, shift = operands()
    expected = torch.empty(2, 3, QUERIES, KEYS, dtype=torch.float64)
    for i in range(QUERIES):
        for j in range(KEYS):
            hidden = F.relu(left[:, :, i] + right[:, :, j])
            outer = F.relu(hidden @ second.T + bias)
            expected[:, :, i, j] = outer @ third[0] + shift
    for form in (sum_layers, by_pieces):
        torch.testing.assert_close(form(*operands()), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("gradient", ["dense", "expanded", "transposed"])
def test_the_fast_form_is_the_plain_one_with_its_gradients(gradient: str) -> None:
    above = {
        "dense": torch.randn(2, 3, QUERIES, KEYS, dtype=torch.float64),
        "expanded": torch.ones((), dtype=torch.float64).expand(2, 3, QUERIES, KEYS),
        "transposed": torch.randn(2, 3, KEYS, QUERIES, dtype=torch.float64).transpose(2, 3),
    }[gradient]
    fast, plain = (values_and_gradients(form, above) for form in (by_pieces, sum_layers))
    check_equal(fast, plain)


@pytest.mark.parametrize("limit", [1, 6, 72, 150, 400, 10**6])
def test_pieces_of_planes_and_of_rows_make_the_whole(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = torch.randn(2, 3, QUERIES, KEYS, dtype=torch.float64)
    expected = values_and_gradients(sum_layers, above)
    monkeypatch.setitem(PIECE, "cpu", limit)
    check_equal(values_and_gradients(by_pieces, above), expected)


def test_the_fast_form_has_first_and_second_derivatives() -> None:
    leaves = [t.requires_grad_() for t in operands(1)]
    assert torch.autograd.gradcheck(by_pieces, leaves)
    assert torch.autograd.gradgradcheck(by_pieces, leaves, check_batched_grad=True)


def test_the_fast_form_takes_transforms() -> None:
    """Several networks at once, as when seeds train together; one sample's gradient each."""
    given = operands()
    seconds = torch.randn(5, SECOND, FIRST, dtype=torch.float64)

    def scores(second: Tensor) -> Tensor:
        found: Tensor = by_pieces(*given[:2], second, *given[3:])
        return found

    expected = torch.stack([scores(second) for second in seconds])
    torch.testing.assert_close(torch.vmap(scores)(seconds), expected, rtol=0, atol=1e-12)
    slopes = torch.vmap(torch.func.grad(lambda own: scores(own).square().sum()))(seconds)
    leaf = seconds.clone().requires_grad_()
    (each,) = torch.autograd.grad(sum(scores(own).square().sum() for own in leaf), leaf)
    torch.testing.assert_close(slopes, each, rtol=0, atol=1e-10)


@pytest.mark.parametrize("autocast", [False, True])
def test_sums_of_16_bit_layers_are_rounded_once(autocast: bool) -> None:
    short = [t.requires_grad_() for t in operands(dtype=torch.bfloat16)]
    exact = [t.detach().double().requires_grad_() for t in short]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        scores = by_pieces(*short)
        assert scores.dtype == sum_layers(*short).dtype == torch.bfloat16
        scores.sum().backward()
    expected = sum_layers(*exact)
    expected.sum().backward()
    torch.testing.assert_close(scores, expected.bfloat16(), rtol=2**-7, atol=1e-5)
    for ours, theirs in zip(short, exact, strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad.bfloat16(), rtol=2**-7, atol=1e-5)


def test_training_remembers_no_plane_of_pairs() -> None:
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    leaves = [t.requires_grad_() for t in operands()]
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        by_pieces(*leaves)
    assert sizes == [t.numel() for t in leaves]


def test_an_export_holds_the_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    class Scores(nn.Module):
        def forward(self, *given: Tensor) -> Tensor:
            return by_choice(*given)

    monkeypatch.setattr(LayerScores, "rule", lambda *given: "pieces")
    exported = torch.export.export(Scores(), tuple(operands()))
    calls = [str(n.target) for n in exported.graph.nodes if n.op == "call_function"]
    assert calls.count("aten.linear.default") == 2
    assert not any("autograd" in call for call in calls)
