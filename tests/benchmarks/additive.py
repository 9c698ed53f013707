"""What additive scores cost by the ways to write them: forward and backward, on one thread.

Neural Attention's published code concatenates every query with every key and sends n² vectors of
2d' numbers through its network. Splitting the first layer (W [q; k] = W_q q + W_k k) leaves sums
of pairs; unit by unit no tensor of pairs and features exists; in pieces no plane of pairs is kept.
Forms take turns, and the best of all rounds counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.kernels.pair_scores import fast_sum_units
from nas.primitives.hidden_units import activate, sum_units
from nas.primitives.neural_attention import NeuralAttention
from nas.primitives.neural_attention_authors import NeuralAttentionAuthors
from tests.benchmarks.figures import Figure, interleaved, ratio

# Batch, heads, tokens, d', units of the hidden layer: the paper's smallest reduction at half its
# length, the same with more units, and one step of the task vit-cifar10.
SIZES: Final = ((1, 8, 512, 2, 2), (1, 8, 512, 2, 16), (64, 4, 65, 16, 16))
HEAD_WIDTH: Final = 64

Form = Callable[[Tensor, Tensor], Tensor]


def additive(options: argparse.Namespace) -> list[Figure]:
    """Milliseconds of forward and backward, and how many times faster than concatenation."""
    rounds: int = options.rounds
    figures = []
    for batch, heads, tokens, reduced, width in SIZES:
        query, key = (torch.randn(batch, heads, tokens, HEAD_WIDTH) for _ in range(2))
        print(
            f"\nbatch {batch}, {heads} heads, {tokens} tokens, d' = {reduced}, m = {width}: "
            f"forward and backward, best of {rounds} interleaved rounds"
        )
        groups = _forms(heads, reduced, width)
        taken = _times(groups, query, key, rounds)
        for title, group in groups.items():
            print(f"  {title}")
            first = next(iter(group))
            for name in group:
                label = f"{name}, {tokens} tokens, m = {width}"
                found = ratio(label, taken[first], taken[name])
                print(f"    {name:38}{1e3 * min(taken[name]):9.1f} ms{found.value:8.2f}x")
                figures += [found] if name != first else []
    return figures


def _forms(heads: int, reduced: int, width: int) -> dict[str, dict[str, Form]]:
    """Scorers of the same weights by network and name, the concatenating one first."""
    torch.manual_seed(0)
    authors = NeuralAttentionAuthors(HEAD_WIDTH, reduced_dim=reduced)
    one = NeuralAttention(heads, HEAD_WIDTH, HEAD_WIDTH, reduced_dim=reduced, width=width)
    return {
        "the published code's network, d', d'/2 and 1 units": {
            "concatenated, as published": lambda q, k: _concatenated(authors, q, k),
            "split: neural_attention_authors": authors,
        },
        "one hidden layer of m units": {
            "concatenated": lambda q, k: _one_concatenated(one, q, k),
            "split, unit by unit": lambda q, k: _split(one, q, k, sum_units),
            "split, by pieces: neural_attention": lambda q, k: _split(one, q, k, fast_sum_units),
        },
    }


def _times(
    groups: dict[str, dict[str, Form]], query: Tensor, key: Tensor, rounds: int
) -> dict[str, list[float]]:
    query, key = query.requires_grad_(), key.requires_grad_()
    forms = {name: form for group in groups.values() for name, form in group.items()}
    works = {name: partial(_pass, form, query, key) for name, form in forms.items()}
    return interleaved(works, rounds)


def _pass(form: Form, query: Tensor, key: Tensor) -> None:
    form(query, key).sum().backward()


def _pairs(query: Tensor, key: Tensor) -> Tensor:
    """Every query beside every key, (b, h, q, k, 2w)."""
    left = query.unsqueeze(3).expand(-1, -1, -1, key.shape[2], -1)
    right = key.unsqueeze(2).expand(-1, -1, query.shape[2], -1, -1)
    return torch.cat((left, right), dim=-1)


def _concatenated(module: NeuralAttentionAuthors, query: Tensor, key: Tensor) -> Tensor:
    network = nn.Sequential(module.first, nn.ReLU(), module.second, nn.ReLU(), module.third)
    scores: Tensor = network(_pairs(module.query_map(query), module.key_map(key)))
    return scores.squeeze(-1)


def _reduced(module: NeuralAttention, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    return (
        F.linear(query, module.query_weight, module.query_bias),
        F.linear(key, module.key_weight, module.key_bias),
    )


def _one_concatenated(module: NeuralAttention, query: Tensor, key: Tensor) -> Tensor:
    pairs = _pairs(*_reduced(module, query, key))
    hidden = F.linear(pairs, module.hidden_weight, module.hidden_bias)
    return activate(hidden, module.activation) @ module.out_weight + module.out_bias


def _split(
    module: NeuralAttention, query: Tensor, key: Tensor, reduce: Callable[..., Tensor]
) -> Tensor:
    query, key = _reduced(module, query, key)
    left = F.linear(query, module.hidden_weight[:, : module.inner], module.hidden_bias)
    right = F.linear(key, module.hidden_weight[:, module.inner :])
    return reduce(left, right, module.out_weight, module.out_bias, module.activation)
