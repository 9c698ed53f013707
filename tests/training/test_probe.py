"""The probe tells mechanisms that say nothing, or too much, from all others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nas.compiler import build_attention
from nas.genome import ModelSizes
from nas.mechanisms import MECHANISMS, mechanism
from nas.training.probe import Constant, Leak, probe

SIZES = ModelSizes(32, 8, 2, 16)


def block_of(genome):
    return build_attention(genome, SIZES.dim, SIZES.heads)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("name", MECHANISMS)
def test_probe_passes_every_named_mechanism(name, is_causal):
    block = block_of(mechanism(name).genome)
    before = {key: value.clone() for key, value in block.state_dict().items()}
    probe(block, SIZES, is_causal=is_causal)
    assert all(torch.equal(value, before[key]) for key, value in block.state_dict().items())


def test_probe_finds_a_legal_mechanism_that_is_always_zero(genome):
    always = genome(("distance", "qk"), ("relu_squared", [0]), ("weighted_sum", [1, "v"]))
    with pytest.raises(Constant, match="same output for every input"):
        probe(block_of(always), SIZES, is_causal=False)


class Bias(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(32))

    def forward(self, x, is_causal=False):
        return self.bias.expand_as(x)


def test_probe_finds_what_is_constant_and_not_zero():
    with pytest.raises(Constant):
        probe(Bias(), SIZES, is_causal=True)


class Closed(nn.Module):
    """Starts as zero, and learns otherwise: a gate that opens."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.gate * x


def test_probe_lets_pass_what_begins_closed():
    probe(Closed(), SIZES, is_causal=False)


class Leaky(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form = form

    def forward(self, x, is_causal=False):
        return self.form(x)


@pytest.mark.parametrize(
    "leak",
    [
        lambda x: x.mean(dim=1, keepdim=True).expand_as(x),
        lambda x: x.roll(-1, dims=1),
        lambda x: nn.functional.avg_pool1d(x.mT, 3, 1, 1).mT,
    ],
)
def test_probe_finds_a_planted_leak(leak):
    probe(Leaky(leak), SIZES, is_causal=False)
    with pytest.raises(Leak, match="depends on later tokens"):
        probe(Leaky(leak), SIZES, is_causal=True)


def test_probe_leaves_what_is_not_finite_to_the_training():
    probe(Leaky(lambda x: x / 0), SIZES, is_causal=True)
