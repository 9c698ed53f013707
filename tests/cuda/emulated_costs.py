"""Calibration and decoding on a GPU, on the emulated runtime.

A calibration times CUDA graphs and nothing else; decoding neither waits for results nor copies.
"""

from __future__ import annotations

import pytest
import torch
from nas.costs.decoding import Decoder
from torch import nn

from nas.common.captures import CudaGraphs
from nas.compiler import build_attention
from nas.costs.timing import calibrate, calibration
from nas.costs.timing.measuring import LEAST_ROUNDS, REPLAYS, Passes
from nas.genome import Genome, ModelSizes, Node, Projections, Visibility
from nas.genome.mechanisms import mechanism
from tests.cuda import emulation

SIZES = ModelSizes(dim=32, heads=4, depth=1, tokens=9)
OPTIONS = {"batch": 4, "precision": "float32", "device": "cuda", "is_causal": False,
           "qkv_bias": False, "seconds": 0.0}  # fmt: skip


def block(name="mha"):
    return build_attention(mechanism(name).genome, SIZES.dim, SIZES.heads)


class Waiting(nn.Module):
    """Attention of a plug-in that reads a result."""

    def __init__(self):
        super().__init__()
        self.inner = block()

    def forward(self, x, is_causal=False):
        return self.inner(x, is_causal=is_causal) * float(x.sum().isfinite())


# They call solvers of cuBLAS and cuSOLVER, which are not emulated.
SOLVERS = {"delta", "erase_delta", "softmax_delta", "mesa_query", "path_product"}


def some_designs(tokens, designs=calibration.designs):
    """Every tenth mechanism, and those with sparsemax; without solvers."""
    operations = [({node.op for node in genome.nodes}, genome) for genome in designs(tokens)]
    emulated = [(ops, genome) for ops, genome in operations if not ops & SOLVERS]
    return [g for i, (ops, g) in enumerate(emulated) if i % 10 == 0 or "sparsemax" in ops]


def test_each_mechanism_is_timed_by_ten_replays_between_two_events(monkeypatch):
    monkeypatch.setattr(calibration, "designs", some_designs)
    emulation.reset()
    found = calibrate(SIZES, **OPTIONS)
    captures = emulation.counter("captures")
    assert captures > 15
    assert REPLAYS == 10
    rounds = captures * (1 + LEAST_ROUNDS)
    assert emulation.counter("replays") == rounds * REPLAYS
    # Before and after each timing; and for weights that are copied to the GPU.
    assert emulation.counter("synchronisations") < 2 * rounds + 5 * captures
    assert emulation.counter("capture_faults") == 0
    assert found["device"] == "cuda"
    assert found["units"]["layer"] > 0


def test_a_pass_accumulates_no_gradients():
    """A training sets gradients to None before each pass: it adds nothing to them."""
    passes = Passes(SIZES, 4, precision="float32", device="cuda", is_causal=False)
    attention = block()
    work = passes.of(attention)
    emulation.reset()
    work()
    replayed = emulation.counter("replayed_nodes")
    assert all(weight.grad is None for weight in attention.parameters())
    x, above = passes.x.requires_grad_(), passes.above
    for gradients_kept in (False, True):
        emulation.reset()
        if not gradients_kept:
            attention.zero_grad()
            x.grad = None
        attention(x).backward(above)
        launched = sum(emulation.counter(name) for name in ("kernels", "fills", "copies"))
        added = len(list(attention.parameters())) + 1 if gradients_kept else 0
        assert launched == replayed + added


def test_a_mechanism_that_waits_is_left_out(monkeypatch):
    """Its eager time would be mixed with times of graphs."""
    monkeypatch.setattr(calibration, "designs", some_designs)
    build = calibration.build_attention

    def build_attention(genome, *sizes, **options):
        waits = any(node.op == "sparsemax" for node in genome.nodes)
        return Waiting() if waits else build(genome, *sizes, **options)

    whole = calibrate(SIZES, **OPTIONS)
    monkeypatch.setattr(calibration, "build_attention", build_attention)
    emulation.reset()
    found = calibrate(SIZES, **OPTIONS)
    # Some of the mechanisms with sparsemax are the only ones with a window's mask.
    assert (
        "sparsemax"
        in whole["units"].keys() - found["units"].keys()
        <= {
            "sparsemax",
            "sparsemax.call",
            "mask",
        }
    )
    assert emulation.counter("replays") == emulation.counter("captures") * 3 * REPLAYS
    assert not CudaGraphs.broken
    monkeypatch.setattr(calibration, "build_attention", lambda *_, **__: Waiting())
    with pytest.raises(RuntimeError, match="synchronizing"):
        calibrate(SIZES, **OPTIONS)


def test_a_decoding_step_is_timed_eagerly(monkeypatch):
    monkeypatch.setattr(calibration, "designs", some_designs)
    found = calibrate(SIZES, **OPTIONS | {"is_causal": True})
    assert any(found["decode"].values())
    assert torch.cuda.memory_allocated() < 2**25  # with the workspaces of cuBLAS


DECODED = {name: mechanism(name).genome for name in ("mha", "qana", "sw_sqa", "flex_sqa")} | {
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
