"""The graph as a picture: what is in it, how it is placed, and that text is only text."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations

import pytest

from nas.compiler import make_plan
from nas.genome.mechanisms import MECHANISMS
from nas.report.graph import (
    BEND,
    GAP,
    STREAM,
    assign_layers,
    box_graph,
    graph_svg,
    place_boxes,
)

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", ["mha", "qana", "kda", "canon"])
def test_boxes_do_not_overlap_and_lie_below_their_inputs(name: str) -> None:
    genome = make_plan(MECHANISMS[name].genome).genome
    graph = box_graph(genome)
    layers = assign_layers(graph)
    x = place_boxes(graph, layers)
    words = sorted(box.words for box in graph if box.role not in (STREAM, BEND))
    assert words == sorted(node.op.replace("_", " ") for node in genome.nodes)
    assert min(layers.values()) == 0
    assert all(layers[end] == layers[start] + 1 for start, end in graph.edges)
    for left, right in combinations(sorted(graph, key=lambda box: x[box]), 2):
        if layers[left] == layers[right]:
            assert x[right] - x[left] >= (left.width + right.width) / 2 + GAP - 1e-6


def test_svg_is_well_formed_and_escapes_text() -> None:
    node = MECHANISMS["qana"].genome.nodes[0]
    hostile = "<script>alert(1)</script>\x1b"
    genome = MECHANISMS["qana"].genome.with_node(0, replace(node, params=(("hidden", hostile),)))
    text = graph_svg(genome)
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg"
    words = [each.text for each in root.iter(f"{SVG}text")]
    assert "hidden <script>alert(1)</script>\\u001b" in words
    assert {"q = x·W_Q", "k = x·W_K", "v = x·W_V", "qana", "softmax"} < set(words)
    assert not {"script", "style", "image", "foreignObject"} & {
        e.tag.split("}")[1] for e in root.iter()
    }
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
