"""Scores that are sums: the shared reduction, additive attention and both neural attentions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.primitives import get
from nas.primitives.additive_attention_score import AdditiveAttentionScore
from nas.primitives.base import Sizes
from nas.primitives.hidden_units import UnitSum, reduce_units, split_linear, sum_units
from nas.primitives.neural_attention import NeuralAttention
from nas.primitives.neural_attention_authors import NeuralAttentionAuthors

ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu, "tanh": torch.tanh}


def tokens(heads: int, length: int, width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, heads, length, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(5,), (3, 5)], ids=["shared", "per_head"])
def test_reduction_equals_the_broadcast_sum(activation: str, shape: tuple[int, ...]) -> None:
    left, right = tokens(3, 4, 5, 0), tokens(3, 6, 5, 1)
    weight = torch.randn(shape, dtype=torch.float64)
    units = ACTIVATIONS[activation](left.unsqueeze(3) + right.unsqueeze(2))
    rows = weight if weight.dim() == 1 else weight[:, None, None, :]
    torch.testing.assert_close(
        reduce_units(left, right, weight, activation), (units * rows).sum(-1), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(5,), (3, 5)], ids=["shared", "per_head"])
@pytest.mark.parametrize("gradient", ["dense", "expanded", "transposed"])
def test_the_fast_form_is_the_plain_one_with_its_gradients(
    activation: str, shape: tuple[int, ...], gradient: str
) -> None:
    operands = [tokens(3, 4, 5, 0), tokens(3, 6, 5, 1), torch.randn(shape, dtype=torch.float64)]
    above = {
        "dense": tokens(3, 4, 6, 2),
        "expanded": torch.ones((), dtype=torch.float64).expand(2, 3, 4, 6),
        "transposed": tokens(3, 6, 4, 2).transpose(2, 3),
    }[gradient]
    fast = values_and_gradients(UnitSum.apply, operands, activation, above)
    plain = values_and_gradients(sum_units, operands, activation, above)
    for ours, theirs in zip(fast, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_pieces_of_planes_and_of_rows_make_the_whole(
    activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As cut for long sequences (rows), for short ones (planes), and not at all."""
    operands = [tokens(3, 7, 2, 0), tokens(3, 5, 2, 1), torch.randn(3, 2, dtype=torch.float64)]
    above = tokens(3, 7, 5, 2)
    plain = values_and_gradients(sum_units, operands, activation, above)
    for limit in (1, 5, 12, 35, 80, 10**6):
        monkeypatch.setattr(UnitSum, "piece", limit)
        fast = values_and_gradients(UnitSum.apply, operands, activation, above)
        for ours, theirs in zip(fast, plain, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def values_and_gradients(
    form: Callable[..., Tensor], operands: list[Tensor], activation: str, above: Tensor
) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in operands]
    scores = form(*leaves, activation)
    return [scores, *torch.autograd.grad(scores, leaves, above)]


@pytest.mark.parametrize("activation", ["gelu", "silu", "tanh"])
def test_the_fast_form_has_first_and_second_derivatives(activation: str) -> None:
    operands = [tokens(1, 2, 3, 0), tokens(1, 3, 3, 1), torch.randn(3, dtype=torch.float64)]
    leaves = [t.requires_grad_() for t in operands]
    assert torch.autograd.gradcheck(lambda *t: reduce_units(*t, activation), leaves)
    assert torch.autograd.gradgradcheck(
        lambda *t: reduce_units(*t, activation), leaves, check_batched_grad=True
    )


def test_only_wanted_gradients_are_given() -> None:
    left, right = tokens(2, 3, 4, 0).requires_grad_(), tokens(2, 3, 4, 1)
    weight = torch.randn(4, dtype=torch.float64)
    reduce_units(left, right, weight, "gelu").sum().backward()
    assert left.grad is not None
    assert right.grad is None
    assert weight.grad is None


def test_the_fast_form_takes_transforms() -> None:
    """Several networks at once, as when seeds train together; one sample's gradient each."""
    left, right = tokens(2, 3, 4, 0), tokens(2, 3, 4, 1)
    weights = torch.randn(5, 4, dtype=torch.float64)
    batched = torch.vmap(lambda w: reduce_units(left, right, w, "tanh"))(weights)
    each = [reduce_units(left, right, w, "tanh") for w in weights]
    torch.testing.assert_close(batched, torch.stack(each), rtol=0, atol=1e-12)

    def loss(weight: Tensor, one: Tensor) -> Tensor:
        return reduce_units(one[None], right[:1], weight, "tanh").sum()

    slopes = torch.vmap(torch.func.grad(loss), (None, 0))(weights[0], left)
    for one, slope in zip(left, slopes, strict=True):
        weight = weights[0].clone().requires_grad_()
        (expected,) = torch.autograd.grad(loss(weight, one), weight)
        torch.testing.assert_close(slope, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("autocast", [False, True])
def test_sums_of_16_bit_units_are_rounded_once(activation: str, autocast: bool) -> None:
    left, right = (
        t.bfloat16().requires_grad_() for t in (tokens(3, 9, 16, 0), tokens(3, 9, 16, 1))
    )
    weight = torch.randn(16).requires_grad_()
    exact = [t.detach().double().requires_grad_() for t in (left, right, weight)]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        scores = reduce_units(left, right, weight, activation)
        assert scores.dtype == sum_units(left, right, weight, activation).dtype == torch.float32
        scores.sum().backward()
    expected = sum_units(*exact, activation)
    expected.sum().backward()
    torch.testing.assert_close(scores.double(), expected, rtol=1e-5, atol=1e-5)
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad.double(), exact[2].grad, rtol=1e-5, atol=1e-3)
    for short, wide in ((left, exact[0]), (right, exact[1])):
        torch.testing.assert_close(short.grad, wide.grad.bfloat16(), rtol=2**-7, atol=1e-5)


def test_training_remembers_no_plane_of_pairs() -> None:
    """What autograd keeps of 64 units is smaller than a tenth of one plane."""
    sizes: list[int] = []

    def kept(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    left, right = (torch.randn(1, 1, 700, 64, requires_grad=True) for _ in range(2))
    weight = torch.randn(64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(kept, lambda tensor: tensor):
        reduce_units(left, right, weight, "gelu")
    assert sum(sizes) == left.numel() + right.numel() + weight.numel()


def test_an_export_holds_the_plain_form() -> None:
    class Scores(nn.Module):
        def forward(self, left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
            return reduce_units(left, right, weight, "relu")

    operands = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4), torch.randn(4)
    exported = torch.export.export(Scores(), operands)
    calls = [str(n.target) for n in exported.graph.nodes if n.op == "call_function"]
    assert calls.count("aten.addcmul.default") == 4
    assert not any("autograd" in call for call in calls)


def test_split_linear_gives_every_head_its_own_map() -> None:
    x, weight = tokens(3, 4, 5, 0), torch.randn(3, 2, 5, dtype=torch.float64)
    bias = torch.randn(3, 2, dtype=torch.float64)
    one_by_one = [F.linear(x[:, h], weight[h], bias[h]) for h in range(3)]
    torch.testing.assert_close(split_linear(x, weight, bias), torch.stack(one_by_one, 1))


def test_additive_score_equals_its_formula_pair_by_pair() -> None:
    module = AdditiveAttentionScore(4).double()
    query, key = tokens(2, 3, 4, 0), tokens(2, 5, 4, 1)
    scores = module(query, key)
    out, w1, w2 = module.out.weight, module.query_map.weight, module.key_map.weight
    for i, j in itertools.product(range(3), range(5)):
        hidden = torch.tanh(query[:, :, i] @ w1.T + key[:, :, j] @ w2.T)
        torch.testing.assert_close(scores[:, :, i, j], (hidden @ out.T).squeeze(-1))


def slow_neural(module: NeuralAttention, query: Tensor, key: Tensor, head: int) -> Tensor:
    """One head, one pair after the other, by concatenation."""

    def own(parameter: Tensor) -> Tensor:
        return parameter[head] if module.hidden_weight.dim() == 3 else parameter

    if module.is_reduced:
        query = F.linear(query, own(module.query_weight), own(module.query_bias))
        key = F.linear(key, own(module.key_weight), own(module.key_bias))
    scores = query.new_zeros(query.shape[0], query.shape[1], key.shape[1])
    for i, j in itertools.product(range(query.shape[1]), range(key.shape[1])):
        pair = torch.cat((query[:, i], key[:, j]), dim=-1)
        hidden = F.linear(pair, own(module.hidden_weight), own(module.hidden_bias))
        active = ACTIVATIONS[module.activation](hidden)
        scores[:, i, j] = active @ own(module.out_weight) + own(module.out_bias)
    return scores * module.scale


@pytest.mark.parametrize("reduced_dim", [None, 2, 3])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_neural_attention_equals_the_slow_loop(
    reduced_dim: int | None, activation: str, per_head: bool, scale: bool
) -> None:
    module = NeuralAttention(
        heads=2,
        head_width=6,
        rank=6,
        width=5,
        reduced_dim=reduced_dim,
        activation=activation,
        per_head=per_head,
        scale=scale,
    ).double()
    query, key = tokens(2, 3, 6, 0), tokens(2, 4, 6, 1)
    expected = torch.stack([slow_neural(module, query[:, h], key[:, h], h) for h in range(2)], 1)
    torch.testing.assert_close(module(query, key), expected, rtol=0, atol=1e-12)


def test_neural_attention_scale_is_that_of_the_head() -> None:
    assert NeuralAttention(heads=2, head_width=64, rank=16, scale=True).scale == 1 / math.sqrt(16)
    assert NeuralAttention(heads=2, head_width=64, rank=16).scale == 1.0


@pytest.mark.parametrize("reduced_dim", [None, 2, 16])
def test_neural_attention_parameters_equal_the_closed_form(reduced_dim: int | None) -> None:
    inner, hidden, width = reduced_dim or 64, 8, 64
    one = 2 * inner * hidden + hidden + hidden + 1
    one += 2 * (width * inner + inner) if reduced_dim else 0
    for per_head in (False, True):
        module = NeuralAttention(
            heads=3,
            head_width=width,
            rank=width,
            width=hidden,
            reduced_dim=reduced_dim,
            per_head=per_head,
        )
        assert count(module) == one * (3 if per_head else 1)


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(("reduced_dim", "added"), [(2, 275), (16, 2753), (None, 10_369)])
def test_authors_form_has_the_published_parameter_counts(
    reduced_dim: int | None, added: int
) -> None:
    assert count(NeuralAttentionAuthors(64, reduced_dim=reduced_dim)) == added


@pytest.mark.parametrize("reduced_dim", [None, 2, 5])
def test_authors_form_equals_concatenation(reduced_dim: int | None) -> None:
    module = NeuralAttentionAuthors(6, reduced_dim=reduced_dim).double()
    query, key = tokens(2, 3, 6, 0), tokens(2, 4, 6, 1)
    left = module.query_map(query).unsqueeze(3).expand(-1, -1, -1, 4, -1)
    right = module.key_map(key).unsqueeze(2).expand(-1, -1, 3, -1, -1)
    network = nn.Sequential(module.first, nn.ReLU(), module.second, nn.ReLU(), module.third)
    expected = network(torch.cat((left, right), dim=-1)).squeeze(-1)
    torch.testing.assert_close(module(query, key), expected, rtol=0, atol=1e-12)


def test_authors_form_needs_two_features() -> None:
    with pytest.raises(ValueError, match="the width is 1; expected 2 or more"):
        NeuralAttentionAuthors(1)


SCORERS = {
    "authors, d' = 2": lambda: NeuralAttentionAuthors(16, reduced_dim=2),
    "authors, d' = 3": lambda: NeuralAttentionAuthors(16, reduced_dim=3),
    "authors": lambda: NeuralAttentionAuthors(16),
    "relu, m = 1": lambda: NeuralAttention(2, 16, 16, width=1, activation="relu"),
    "relu, m = 1, d' = 2": lambda: NeuralAttention(
        2, 16, 16, width=1, activation="relu", reduced_dim=2
    ),
    "relu, per head": lambda: NeuralAttention(
        2, 16, 16, width=2, activation="relu", per_head=True, reduced_dim=2
    ),
    "gelu, m = 1": lambda: NeuralAttention(2, 16, 16, width=1),
    "tanh, m = 1": lambda: NeuralAttention(2, 16, 16, width=1, activation="tanh"),
    "silu, m = 1, d' = 2": lambda: NeuralAttention(
        2, 16, 16, width=1, activation="silu", reduced_dim=2
    ),
}


@pytest.mark.parametrize("scorer", SCORERS)
def test_no_start_is_a_dead_constant(scorer: str) -> None:
    query, key = tokens(2, 17, 16, 0).float(), tokens(2, 17, 16, 1).float()
    for seed in range(50):
        torch.manual_seed(seed)
        spread = SCORERS[scorer]()(query, key).std(dim=-1)
        assert spread.min() > 1e-5, f"seed {seed}"


@pytest.mark.parametrize("name", ["neural_attention", "neural_attention_authors"])
def test_a_constant_on_the_last_bias_is_nothing_to_softmax(name: str) -> None:
    torch.manual_seed(0)
    module = (
        NeuralAttention(2, 6, 6) if name == "neural_attention" else NeuralAttentionAuthors(6)
    ).double()
    query, key = tokens(2, 5, 6, 0), tokens(2, 5, 6, 1)
    before = torch.softmax(module(query, key), -1)
    last = module.out_bias if isinstance(module, NeuralAttention) else module.third.bias
    with torch.no_grad():
        last.add_(3.0)
    torch.testing.assert_close(torch.softmax(module(query, key), -1), before)


def test_macs_are_those_of_the_mechanism() -> None:
    sizes = Sizes(dim=64, heads=4, width=16, tokens=65)
    additive = get("additive_attention_score").macs(sizes, {})
    assert additive == 4 * (2 * 65 * 16 * 16 + 65 * 65 * 16)
    neural = get("neural_attention")
    params = neural.full({"reduced_dim": 2, "width": 8})
    assert neural.macs(sizes, params) == 4 * (2 * 65 * 16 * 2 + 2 * 65 * 2 * 8 + 65 * 65 * 8)
    authors = get("neural_attention_authors").macs(sizes, {"reduced_dim": 2})
    assert authors == 4 * (2 * 65 * 16 * 2 + 2 * 65 * 4 + 65 * 65 * (2 + 1))
