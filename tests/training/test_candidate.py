"""The probe tells mechanisms that say nothing, or too much, from all others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nas.compiler import build_attention
from nas.genome import ModelSizes
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.training.candidate import Constant, Leak, probe

SIZES = ModelSizes(32, 8, 2, 16)


def block_of(genome):
    return build_attention(genome, SIZES.dim, SIZES.heads)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_probe_passes_every_named_mechanism(name):
    block = block_of(mechanism(name).genome)
    before = {key: value.clone() for key, value in block.state_dict().items()}
    probe(block, SIZES, is_causal=True)
    assert all(torch.equal(value, before[key]) for key, value in block.state_dict().items())


def test_probe_finds_a_legal_mechanism_that_is_always_zero(genome):
    always = genome(("distance", "qk"), ("relu_squared", [0]), ("weighted_sum", [1, "v"]))
    with pytest.raises(Constant, match="same output for every input"):
        probe(block_of(always), SIZES, is_causal=False)


class Block(nn.Module):
    """A formula of the tokens and one weight, in place of attention."""

    def __init__(self, form, weight=0.0):
        super().__init__()
        self.form, self.weight = form, nn.Parameter(torch.as_tensor(weight))

    def forward(self, x, is_causal=False):
        return self.form(x, self.weight)


@pytest.mark.parametrize(
    "leak",
    [
        lambda x, _: x.mean(dim=1, keepdim=True).expand_as(x),
        lambda x, _: x.roll(-1, dims=1),
        lambda x, _: nn.functional.avg_pool1d(x.mT, 3, 1, 1).mT,
        lambda x, _: (
            x + x.unflatten(1, (-1, 8)).mean(2, keepdim=True).expand(-1, -1, 8, -1).flatten(1, 2)
        ),
    ],
)
def test_probe_finds_a_planted_leak(leak):
    probe(Block(leak), SIZES, is_causal=False)
    with pytest.raises(Leak, match="depends on later tokens"):
        probe(Block(leak), SIZES, is_causal=True)


@pytest.mark.parametrize(
    "leak",
    [
        lambda x, _: x + x.mean(dim=0, keepdim=True),
        lambda x, _: x.roll(1, dims=0),
        lambda x, _: x + x[2:].sum(dim=0),
    ],
)
def test_probe_finds_what_mixes_examples(leak):
    with pytest.raises(Leak, match="other examples"):
        probe(Block(leak), SIZES, is_causal=True)
