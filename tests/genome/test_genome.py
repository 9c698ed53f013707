from __future__ import annotations

import json

import pytest

from nas.common.errors import GenomeError
from nas.genome import (
    MAX_INPUTS,
    MAX_NODES,
    Genome,
    Projections,
    Visibility,
    head_count,
    key_width,
    layers_with_mechanism,
)

CHAMPION = {
    "graph_def": [
        {"op": "scaled_dot_product", "inputs": ["v", "k"]},
        {"op": "sigmoid", "inputs": [0]},
        {"op": "gelu", "inputs": ["v"]},
        {"op": "layer_norm", "inputs": [2]},
        {"op": "weighted_sum", "inputs": [1, 3]},
    ],
    "proj_config": {"has_wq": False, "has_wk": False, "has_wv": True, "has_wo": True},
}


def test_published_form_round_trips_unchanged() -> None:
    genome = Genome.from_dict(CHAMPION)
    assert genome.to_dict() == CHAMPION
    assert Genome.from_dict(json.loads(genome.to_json())) == genome


def test_our_additions_round_trip() -> None:
    data = {
        "graph_def": [
            {"op": "qana", "inputs": ["q", "k"], "params": {"hidden": 2}},
            {"op": "softmax", "inputs": [0]},
            {"op": "weighted_sum", "inputs": [1, "v"]},
        ],
        "proj_config": dict.fromkeys(("has_wq", "has_wk", "has_wv", "has_wo"), True)
        | {"q_heads": "1/2", "raw": "shared"},
        "placement": "first",
    }
    assert Genome.from_dict(data).to_dict() == data


def test_a_genome_is_frozen_and_hashable() -> None:
    genome = Genome.from_dict(CHAMPION)
    assert len({genome, Genome.from_dict(CHAMPION)}) == 1
    with pytest.raises(AttributeError):
        genome.placement = "first"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"graph_def": 3}, ["graph_def", "list"]),
        ({"graph_def": [{"op": "softmax", "inputs": [0]}]}, ["node 0", "int 0", "first"]),
        ({"graph_def": [{"op": "softmax", "inputs": [-1]}]}, ["node 0", "-1"]),
        ({"graph_def": [{"op": "softmax", "inputs": [True]}]}, ["bool True"]),
        ({"graph_def": [{"op": "softmax", "inputs": ["z"]}]}, ["'z'", "'q', 'k', 'v'"]),
        ({"graph_def": [{"op": 1, "inputs": []}]}, ["op is int 1"]),
        ({"graph_def": [{"op": "softmax"}]}, ["inputs is nothing"]),
        ({"graph_def": [{"op": "softmax", "input": []}]}, ["'input'", "did you mean 'inputs'"]),
        (
            {"graph_def": [{"op": "add", "inputs": ["v"] * (MAX_INPUTS + 1)}]},
            ["node 0 (add)", "17 inputs", "at most 16"],
        ),
        ({"graf": []}, ["'graf'"]),
        ({"proj_config": {"has_wq": 1}}, ["has_wq", "true or false"]),
        ({"proj_config": {"q_heads": "1/3"}}, ["q_heads", "'1/3'", "1/4"]),
        ({"placement": "last"}, ["placement", "'last'", "first"]),
    ],
)
def test_what_cannot_be_read_is_named(change: dict[str, object], words: list[str]) -> None:
    with pytest.raises(GenomeError) as caught:
        Genome.from_dict(CHAMPION | change, "some.json")
    message = str(caught.value)
    assert "some.json" in message
    for word in words:
        assert word in message
    assert "\n" not in message


def test_a_graph_without_nodes_can_be_read_but_not_one_without_end() -> None:
    assert Genome.from_dict({"graph_def": []}).nodes == ()
    node = {"op": "gelu", "inputs": ["v"]}
    with pytest.raises(GenomeError, match=str(MAX_NODES)):
        Genome.from_dict({"graph_def": [node] * (MAX_NODES + 1)})


def test_flags_default_to_projected() -> None:
    assert Genome.from_dict({"graph_def": []}).projections == Projections()


@pytest.mark.parametrize(
    ("label", "heads", "count"),
    [("all", 8, 8), ("3/4", 8, 6), ("1/2", 4, 2), ("1/8", 4, 1), ("one", 16, 1), ("1/4", 1, 1)],
)
def test_head_count_of_a_label(label: str, heads: int, count: int) -> None:
    assert head_count(label, heads) == count


@pytest.mark.parametrize(("label", "heads"), [("3/4", 6), ("1/2", 3), ("1/8", 12)])
def test_head_count_that_is_not_whole_is_refused(label: str, heads: int) -> None:
    with pytest.raises(ValueError, match=label):
        head_count(label, heads)


@pytest.mark.parametrize(
    ("label", "head_dim", "width"),
    [("all", 15, 15), ("1/2", 16, 8), ("3/4", 8, 6), ("1/4", 8, 2), ("1/4", 4, 2), ("3/4", 10, 8)],
)
def test_key_width_is_even(label: str, head_dim: int, width: int) -> None:
    assert key_width(label, head_dim) == width


def test_placements_name_layers() -> None:
    assert layers_with_mechanism("all", 3) == (0, 1, 2)
    assert layers_with_mechanism("first", 3) == (0,)
    assert layers_with_mechanism("alternate", 5) == (0, 2, 4)


def test_live_nodes_are_those_that_reach_the_output() -> None:
    data = {
        "graph_def": [
            {"op": "gelu", "inputs": ["v"]},
            {"op": "linear", "inputs": ["v"]},
            {"op": "gelu", "inputs": [1]},
        ]
    }
    assert Genome.from_dict(data).live() == (1, 2)


def test_as_a_networkx_graph() -> None:
    graph = Genome.from_dict(CHAMPION).graph()
    assert set(graph.nodes) == {0, 1, 2, 3, 4, "v", "k"}
    assert graph.edges[3, 4]["slots"] == (1,)
    assert graph.nodes[1]["op"] == "sigmoid"


def test_visibility_is_read_and_written() -> None:
    data = CHAMPION | {"visibility": {"window": 16, "global_tokens": 2}}
    genome = Genome.from_dict(data)
    assert genome.visibility == Visibility(16, 2)
    assert genome.to_dict()["visibility"] == {"window": 16, "global_tokens": 2}
    assert "visibility" not in Genome.from_dict(CHAMPION).to_dict()
    assert Genome.from_dict(genome.to_dict()) == genome


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"window": 0}, "expected a whole number from 1 to"),
        ({"window": True}, "window: found bool True"),
        ({"window": "8"}, "window: found str '8'"),
        ({"global_tokens": -1}, "expected a whole number from 0 to"),
        ({"global_tokens": None}, "global_tokens: found"),
        ({"widow": 8}, "'widow'"),
        (8, "visibility: found int 8"),
    ],
)
def test_visibility_that_cannot_be_is_named(seen: object, words: str) -> None:
    with pytest.raises(GenomeError) as caught:
        Genome.from_dict(CHAMPION | {"visibility": seen})
    assert words in str(caught.value)
