"""Swaps and exports of models on a GPU, on the emulated runtime."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import nas
from nas.genome.mechanisms import mechanism
from nas.surgery.core import AttentionCore, HostSizes
from nas.surgery.preserving import difference
from tests.cuda import emulation
from tests.cuda.emulated_costs import DECODED, WINDOWED


@pytest.fixture
def seed():
    """A user's seed of the GPU's generator, which must be the seed afterwards."""
    torch.cuda.manual_seed(1234)
    yield
    assert torch.cuda.initial_seed() == 1234


@pytest.mark.usefixtures("seed")
def test_a_swap_draws_from_the_users_generator():
    model = nn.MultiheadAttention(32, 4, batch_first=True, device="cuda")
    nas.swap_attention(model, "qana")


@pytest.mark.usefixtures("seed")
def test_the_preservation_test_leaves_the_gpus_generator():
    difference(mechanism("qana").genome)


@pytest.mark.usefixtures("seed")
def test_an_export_leaves_the_gpus_generator(tmp_path):
    nas.export("qana", tmp_path / "qana.py")


@pytest.mark.parametrize("name", ["mha", WINDOWED])
def test_a_swapped_layer_with_a_cache_of_fixed_size_waits_for_nothing(name):
    """The mask alone says how many keys there are."""
    core = AttentionCore(DECODED[name], HostSizes(32, 4, 4, 8, is_causal=True)).to("cuda").eval()
    q, k, v, x = (
        torch.zeros(shape, device="cuda")
        for shape in ((2, 4, 1, 8), (2, 4, 16, 8), (2, 4, 16, 8), (2, 1, 32))
    )
    mask = torch.ones(2, 1, 1, 16, dtype=torch.bool, device="cuda")
    core(q, k, v, x, mask, is_causal=True)
    emulation.reset()
    out, _ = core(q, k, v, x, mask, is_causal=True)
    assert emulation.counter("copies_to_host") == emulation.counter("synchronisations") == 0
    assert out.shape == q.shape
