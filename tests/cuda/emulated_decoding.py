"""Decoding on a GPU, on the emulated runtime: Python neither waits for results nor copies."""

from __future__ import annotations

import pytest
import torch

from nas.compiler import build_attention
from nas.costs.decoding import Decoder
from nas.genome import Genome, Node, Projections, Visibility
from nas.genome.mechanisms import MECHANISMS
from nas.surgery.core import AttentionCore, HostSizes
from tests.cuda import emulation

DECODED = {name: named.genome for name, named in MECHANISMS.items()} | {
    f"window of {window}, {first} global": Genome(
        (
            Node("rope", ("q",)),
            Node("rope", ("k",)),
            Node("scaled_dot_product", (0, 1)),
            Node("alibi", (2,)),
            Node("softmax", (3,)),
            Node("weighted_sum", (4, "v")),
        ),
        Projections(),
        visibility=Visibility(window, first),
    )
    for window, first in ((None, 0), (6, 0), (6, 2))
}
WINDOWED = "window of 6, 2 global"


def waits():
    return [emulation.counter(name)
            for name in ("copies_to_host", "copies_to_device", "synchronisations")]  # fmt: skip


@pytest.mark.parametrize("name", DECODED)
def test_a_decoding_step_copies_nothing(name):
    decoder = Decoder(build_attention(DECODED[name], 32, 8).to("cuda").eval())
    x = torch.zeros(2, 1, 32, device="cuda")
    for _ in range(10):
        decoder.step(x)
    emulation.reset()
    decoder.step(x)
    assert waits() == [0, 0, 0]


@pytest.mark.parametrize("name", ["mha", "qana", WINDOWED])
def test_a_swapped_layer_with_a_cache_of_fixed_size_copies_nothing(name):
    """The mask alone says how many keys there are."""
    genome = DECODED[name]
    core = AttentionCore(genome, HostSizes(32, 4, 4, 8, is_causal=True)).to("cuda").eval()
    q, k, v, x = (
        torch.zeros(shape, device="cuda")
        for shape in ((2, 4, 1, 8), (2, 4, 16, 8), (2, 4, 16, 8), (2, 1, 32))
    )
    mask = torch.ones(2, 1, 1, 16, dtype=torch.bool, device="cuda")
    core(q, k, v, x, mask, is_causal=True)
    emulation.reset()
    out, _ = core(q, k, v, x, mask, is_causal=True)
    assert waits() == [0, 0, 0]
    assert out.shape == q.shape
