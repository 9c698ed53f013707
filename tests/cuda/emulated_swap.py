"""Swaps and exports of models on a GPU, on the emulated runtime."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import nas
from nas.genome.mechanisms import mechanism
from nas.surgery.preserving import difference


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
