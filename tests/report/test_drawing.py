"""The graph as text."""

from __future__ import annotations

from nas.genome import Genome
from nas.genome.mechanisms import MECHANISMS
from nas.report.graph import drawing


def text(genome: Genome) -> list[str]:
    return [line.plain for line in drawing(genome).lines()]


def test_mha() -> None:
    assert text(MECHANISMS["mha"].genome) == [
        "q      q = x·W_Q                              tokens[H, d/H]",
        "│ k    k = x·W_K                              tokens[H, d/H]",
        "│ │ v  v = x·W_V                              tokens[H, d/H]",
        "●─┘ │  scores_0 = scaled_dot_product(q, k)    scores[H]",
        "●   │  weights_1 = softmax(scores_0)          weights[H]",
        "●───┘  tokens_2 = weighted_sum(weights_1, v)  tokens[H, d/H]",
        "▼      output = W_O(heads side by side)",
    ]
