"""Scores that are sums: additive attention and both shared forms of Neural Attention."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.primitives.additive_attention_score import AdditiveAttentionScore
from nas.primitives.neural_attention import NeuralAttention
from nas.primitives.neural_attention_authors import NeuralAttentionAuthors

ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu, "tanh": torch.tanh}


def tokens(heads: int, length: int, width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, heads, length, width, generator=generator, dtype=torch.float64)


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
