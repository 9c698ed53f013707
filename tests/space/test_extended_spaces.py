"""Random genomes of the shipped spaces: equal forms, no leak."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from nas.compiler import build_attention, make_plan, resolve
from nas.compiler.interpreter import ReferenceAttention
from nas.costs import CostContext
from nas.costs.memory import kv_cache_bytes_per_token
from nas.genome import Genome, ModelSizes
from nas.genome.mechanisms import mechanism
from nas.space import load_space
from nas.space.rules import load_policy
from nas.space.vary import Variation
from tests.tensors import add_noise

DIM, HEADS = 32, 4
SPACES = ("attention_v2", "attention_causal", "linear_causal")


def samples(name: str, count: int, seed: int = 0) -> Iterator[Genome]:
    """Random genomes; every second one is a named mechanism of the space after two mutations."""
    space = load_space(name)
    variation, rng = Variation(space, load_policy(space.policy)), np.random.default_rng(seed)
    named = [mechanism(name).genome for name in space.mechanisms]
    for number in range(count):
        if number % 2:
            yield variation.mutate(named[number // 2 % len(named)], rng, 2)[0]
        else:
            yield variation.sample(rng)


def check(genome: Genome, tokens: int) -> None:
    """Fast form and interpreter agree, causal or not; no later token is seen."""
    plan = resolve(genome, ModelSizes(DIM, HEADS, 1, tokens), None).plan
    torch.manual_seed(0)
    block = build_attention(plan, DIM, HEADS).double().eval()
    plain = ReferenceAttention(plan, DIM, HEADS).double().eval()
    add_noise(block, 0.2)
    plain.load_state_dict(block.state_dict())
    x = torch.randn(1, tokens, DIM, dtype=torch.float64)
    for is_causal in (False, True)[: 1 if plan.unsafe else 2]:
        with torch.no_grad():
            out, expected = (each(x, is_causal=is_causal) for each in (block, plain))
        torch.testing.assert_close(
            out, expected, rtol=1e-7, atol=1e-7 * expected.abs().max().item()
        )
    if not plan.unsafe:
        later = torch.arange(tokens)[:, None] >= tokens // 2
        moved = torch.where(later, torch.randn_like(x), x)
        gap = (block(moved, is_causal=True) - out)[:, : tokens // 2].abs().max()
        assert gap <= 1e-9 * expected.abs().max(), genome.to_dict()


@pytest.mark.parametrize("count", [12, pytest.param(334, marks=pytest.mark.slow)])
@pytest.mark.parametrize("space", SPACES)
def test_random_genomes_are_exact(space: str, count: int) -> None:
    for number, genome in enumerate(samples(space, count, seed=7)):
        check(genome, (20, 140)[number % 2] if number < 12 else 300)


def test_caches_of_linear_mechanisms_do_not_grow() -> None:
    for genome in samples("linear_causal", 100, seed=3):
        plan = make_plan(genome)
        bytes_ = [
            n * kv_cache_bytes_per_token(plan, CostContext(ModelSizes(64, 4, 1, n)))
            for n in (4096, 8192)
        ]
        assert bytes_[0] == bytes_[1], genome.to_dict()
