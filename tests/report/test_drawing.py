"""The graph as text: every operand's rail meets its node, whatever the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from nas.genome import Genome
from nas.genome.canonical import canonicalise
from nas.genome.mechanisms import MECHANISMS
from nas.report.drawing import drawing, drawing_columns
from nas.report.table import table_lines
from nas.space import load_space
from nas.space.rules import load_policy
from nas.space.vary import Variation


def text(genome: Genome) -> list[str]:
    return [line.plain for line in table_lines(drawing_columns(drawing(genome)))]


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


def test_lines_agree_with_the_graph() -> None:
    """Follow the rails down: each node must touch exactly the rails of its operands."""
    space = load_space("attention_v2")
    variation, rng = Variation(space, load_policy(space.policy)), np.random.default_rng(5)
    for _ in range(200):
        graph = canonicalise(variation.sample(rng))
        lines = drawing(graph)
        assert len({line.value for line in lines}) == len(lines)
        check_rails(graph, lines)


def check_rails(graph: Genome, lines: list[Any]) -> None:
    held: dict[int, str | int] = {}
    streams = len(lines) - len(graph.nodes) - 1
    for place, line in enumerate(lines[:streams]):
        assert line.rails.endswith(line.value)
        held[place] = line.value
    for index, line in enumerate(lines[streams:-1]):
        at = line.rails.index("●") // 2
        signs = {i: line.rails[2 * i : 2 * i + 1] for i in held}
        touched = {i for i, sign in signs.items() if sign and sign in "●├└┤┘┼┴"}
        if at in held and held[at] not in graph.nodes[index].inputs:
            raise AssertionError("a dot covers a value that is still needed")
        assert {held[i] for i in touched} == set(graph.nodes[index].inputs)
        assert all(signs[i] == "│" for i in held.keys() - touched)
        for i in touched:
            if signs[i] in "└┘┴":
                del held[i]
        held[at] = index
    assert list(held.values()) == [len(graph.nodes) - 1]
