"""Neural Attention to the letter: eq. 8 pair by pair, and the limits of weights of a position."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nas.primitives.neural_attention import NeuralAttention
from nas.primitives.neural_attention_per_position import NeuralAttentionPerPosition

ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu, "tanh": torch.tanh}


def tokens(length: int, width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, length, width, generator=generator, dtype=torch.float64)


def slow(module: NeuralAttentionPerPosition, query: Tensor, key: Tensor) -> Tensor:
    """Eq. 5 to 8, one pair of positions after the other, by concatenation."""
    query, key = module.query_map(query), module.key_map(key)
    scores = query.new_zeros(*query.shape[:3], key.shape[2])
    for i, j in itertools.product(range(query.shape[2]), range(key.shape[2])):
        pair = torch.cat((query[:, :, i], key[:, :, j]), dim=-1)
        hidden = F.linear(pair, module.hidden_weight[i, j], module.hidden_bias[i, j])
        active = ACTIVATIONS[module.activation](hidden)
        scores[:, :, i, j] = active @ module.out_weight[i, j] + module.out_bias[i, j]
    return scores * module.scale


@pytest.mark.parametrize("reduced_dim", [None, 2])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(5, 5), (3, 3), (1, 4), (1, 1)])
def test_it_equals_the_slow_loop(
    reduced_dim: int | None, activation: str, scale: bool, rows: int, columns: int
) -> None:
    torch.manual_seed(0)
    module = NeuralAttentionPerPosition(
        6, 6, tokens=5, width=4, reduced_dim=reduced_dim, activation=activation, scale=scale
    ).double()
    query, key = tokens(rows, 6, 0), tokens(columns, 6, 1)
    torch.testing.assert_close(module(query, key), slow(module, query, key), rtol=0, atol=1e-12)


def test_the_same_weights_everywhere_are_the_shared_form() -> None:
    torch.manual_seed(0)
    shared = NeuralAttention(3, 6, 6, width=4, scale=True).double()
    module = NeuralAttentionPerPosition(6, 6, tokens=5, width=4, scale=True).double()
    with torch.no_grad():
        for name in ("hidden_weight", "hidden_bias", "out_weight", "out_bias"):
            getattr(module, name).copy_(getattr(shared, name).expand_as(getattr(module, name)))
    query, key = tokens(5, 6, 0), tokens(5, 6, 1)
    torch.testing.assert_close(module(query, key), shared(query, key), rtol=0, atol=1e-12)


def test_the_same_token_elsewhere_scores_otherwise() -> None:
    torch.manual_seed(0)
    module = NeuralAttentionPerPosition(6, 6, tokens=5).double()
    alike = tokens(1, 6, 0).expand(-1, -1, 5, -1)
    scores = module(alike, alike)
    for a, b in itertools.combinations(scores[0, 0].flatten().tolist(), 2):
        assert abs(a - b) > 1e-6


def test_fewer_tokens_use_the_leading_block() -> None:
    torch.manual_seed(0)
    module = NeuralAttentionPerPosition(6, 6, tokens=9).double()
    query, key = tokens(9, 6, 0), tokens(9, 6, 1)
    whole, part = module(query, key), module(query[:, :, :4], key[:, :, :4])
    torch.testing.assert_close(part, whole[:, :, :4, :4], rtol=0, atol=1e-12)


def test_more_tokens_than_it_has_weights_for_are_refused() -> None:
    module = NeuralAttentionPerPosition(6, 6, tokens=5).double()
    for rows, columns in ((6, 5), (5, 6), (6, 6)):
        with pytest.raises(
            ValueError, match=r"6 tokens came; expected at most the 5 .* more tokens"
        ):
            module(tokens(rows, 6, 0), tokens(columns, 6, 1))


@pytest.mark.parametrize(
    ("length", "reduced_dim", "width", "found"),
    [(1024, 2, 16, "83,886,080"), (65, None, 1024, "558,105,600"), (4096, 2, 1, "83,886,080")],
)
def test_weights_above_the_budget_are_refused_before_they_are_made(
    length: int, reduced_dim: int | None, width: int, found: str
) -> None:
    words = rf"tokens {length}, .* width {width} make {found} weights; expected at most 16,777,216"
    with pytest.raises(ValueError, match=words):
        NeuralAttentionPerPosition(64, 64, tokens=length, reduced_dim=reduced_dim, width=width)


def test_the_budget_itself_is_allowed() -> None:
    """2^20 pairs, of which each has 2d'm + m = 16 weights less one for the odd number's sake."""
    with torch.device("meta"):
        built = NeuralAttentionPerPosition(7, 7, tokens=1024, width=1)
        with pytest.raises(ValueError, match="17,825,792 weights"):
            NeuralAttentionPerPosition(8, 8, tokens=1024, width=1)
    assert built.hidden_weight.numel() + built.out_weight.numel() == 1024**2 * 15


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("reduced_dim", [None, 2])
def test_no_start_is_a_dead_constant(activation: str, reduced_dim: int | None) -> None:
    query, key = tokens(17, 16, 0).float(), tokens(17, 16, 1).float()
    for seed in range(50):
        torch.manual_seed(seed)
        module = NeuralAttentionPerPosition(
            16, 16, tokens=17, width=1, activation=activation, reduced_dim=reduced_dim
        )
        assert module(query, key).std(dim=-1).min() > 1e-5, f"seed {seed}"
