"""Parameters of Neural Attention."""

from __future__ import annotations

import pytest

from nas.compiler import build_attention
from nas.genome import Genome
from nas.genome.mechanisms import mechanism
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
