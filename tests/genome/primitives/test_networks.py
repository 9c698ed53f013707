"""Scores by a network over each pair: additive attention and all forms of Neural Attention."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.neural_scores import (
    AdditiveAttentionScore,
    NeuralAttention,
    NeuralAttentionAuthors,
)
from tests.tensors import ACTIVATIONS, draw


def test_additive_score_equals_its_formula_pair_by_pair() -> None:
    module = AdditiveAttentionScore(4).double()
    query, key = draw(2, 2, 3, 4), draw(2, 2, 5, 4, seed=1)
    scores = module(query, key)
    out, w1, w2 = module.out_weight, module.query_map.weight, module.key_map.weight
    for i, j in itertools.product(range(3), range(5)):
        hidden = torch.tanh(query[:, :, i] @ w1.T + key[:, :, j] @ w2.T)
        torch.testing.assert_close(scores[:, :, i, j], hidden @ out)


def pair_by_pair(module: Any, query: Tensor, key: Tensor) -> Tensor:
    """Eq. 3 to 8 for one pair of one head after the other, by concatenation."""
    scores = query.new_zeros(*query.shape[:3], key.shape[2])
    for h, i, j in itertools.product(*map(range, scores.shape[1:])):
        pair = [query[:, h, i], key[:, h, j]]
        if module.is_reduced:
            weights = (module.query_weight, module.query_bias), (module.key_weight, module.key_bias)
            pair = [F.linear(x, *own) for x, own in zip(pair, weights, strict=True)]
        hidden = F.linear(torch.cat(pair, dim=-1), module.hidden_weight, module.hidden_bias)
        active = ACTIVATIONS[module.activation](hidden)
        scores[:, h, i, j] = active @ module.out_weight + module.out_bias
    return scores


@pytest.mark.parametrize("reduced_dim", [None, 2, 3])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_neural_attention_equals_the_slow_loop(reduced_dim: int | None, activation: str) -> None:
    module = NeuralAttention(6, width=4, reduced_dim=reduced_dim, activation=activation).double()
    for rows, columns in ((5, 5), (3, 4), (1, 1)):
        query, key = draw(2, 2, rows, 6), draw(2, 2, columns, 6, seed=1)
        expected = pair_by_pair(module, query, key)
        torch.testing.assert_close(module(query, key), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("reduced_dim", [None, 2, 5])
def test_authors_form_equals_concatenation(reduced_dim: int | None) -> None:
    module = NeuralAttentionAuthors(6, reduced_dim=reduced_dim).double()
    query, key = draw(2, 2, 3, 6), draw(2, 2, 4, 6, seed=1)
    left = module.query_map(query).unsqueeze(3).expand(-1, -1, -1, 4, -1)
    right = module.key_map(key).unsqueeze(2).expand(-1, -1, 3, -1, -1)
    hidden = torch.cat((left, right), dim=-1)
    for layer in ("first", "second", "third"):
        weights = (getattr(module, f"{layer}_{kind}") for kind in ("weight", "bias"))
        hidden = nn.functional.linear(hidden if layer == "first" else hidden.relu(), *weights)
    expected = hidden.squeeze(-1)
    torch.testing.assert_close(module(query, key), expected, rtol=0, atol=1e-12)


# The smallest of each form, for heads 16 wide.
STARTS = {"authors": lambda: NeuralAttentionAuthors(16, reduced_dim=2)} | {
    name: partial(NeuralAttention, 16, width=1, activation=name, reduced_dim=2)
    for name in ACTIVATIONS
}


@pytest.mark.parametrize("form", STARTS)
def test_no_start_is_a_dead_constant(form: str) -> None:
    query, key = draw(2, 2, 17, 16).float(), draw(2, 2, 17, 16, seed=1).float()
    for seed in range(10):
        torch.manual_seed(seed)
        assert STARTS[form]()(query, key).std(dim=-1).min() > 1e-5, f"seed {seed}"
