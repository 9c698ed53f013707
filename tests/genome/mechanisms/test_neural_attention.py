"""Neural Attention as a whole block: what it adds, where it stands, and what it must not become.

The scores themselves are compared with their equations in tests/primitives.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nas.compiler import build_attention
from nas.evaluation.trainer import build_model
from nas.genome import PLACEMENTS, Genome
from nas.genome.mechanisms import mechanism
from nas.genome.primitives.neural_scores import NeuralAttention
from nas.tasks import Data, load_task
from tests.tensors import count

WIDTH, HIDDEN = 64, 8


def block_genome(op: str, **params: object) -> Genome:
    """Standard attention with that score in place of the dot product."""
    score = {"op": op, "inputs": ["q", "k"], "params": params}
    rest = [{"op": "softmax", "inputs": [0]}, {"op": "weighted_sum", "inputs": [1, "v"]}]
    return Genome.from_dict({"graph_def": [score, *rest], "proj_config": {}})


def added(op: str, reduced_dim: int | None, **params: object) -> int:
    """Parameters that a block with heads 64 wide has beyond multi-head attention."""
    block = build_attention(block_genome(op, reduced_dim=reduced_dim, **params), 3 * WIDTH, 3)
    return count(block) - count(build_attention(mechanism("mha").genome, 3 * WIDTH, 3))


@pytest.mark.parametrize(("reduced_dim", "published"), [(2, 275), (16, 2753), (None, 10_369)])
def test_a_block_adds_what_the_closed_formulas_say(reduced_dim: int | None, published: int) -> None:
    """N3: the authors' form adds what table 1's rows differ by; ours what their equations hold."""
    inner = reduced_dim or WIDTH
    reduction = 2 * (WIDTH * inner + inner) if reduced_dim else 0
    network = 2 * inner * HIDDEN + HIDDEN + HIDDEN + 1
    assert added("neural_attention_authors", reduced_dim) == published
    assert added("neural_attention", reduced_dim, width=HIDDEN) == reduction + network


@pytest.fixture(scope="module")
def digits() -> Data:
    return load_task("vit-cifar10", data="digits").load()


@pytest.mark.parametrize("placement", ["first", "all"])
def test_in_a_backbone_it_stands_where_its_placement_says(placement: str, digits: Data) -> None:
    """N4: the paper's, and the mechanism's, placement is the first layer alone."""
    task = load_task("vit-cifar10", data="digits", overrides={"depth": 3})
    named = mechanism("neural_attention").genome
    assert named.placement == PLACEMENTS["first"]
    genome = replace(named, placement=PLACEMENTS[placement])
    model = build_model(task.resolve(genome), task, digits, seed=0)
    has_network = [
        any(isinstance(m, NeuralAttention) for m in block.modules()) for block in model.attentions()
    ]
    assert has_network == [True, placement == "all", placement == "all"]
    standard = build_model(task.resolve(mechanism("mha").genome), task, digits, seed=0)
    own = count(model.attentions()[0]) - count(standard.attentions()[0])
    assert count(model) - count(standard) == own * sum(has_network)
    if placement == "first":  # the other layers are those of the same model without it
        for ours, theirs in zip(model.attentions()[1:], standard.attentions()[1:], strict=True):
            torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)
