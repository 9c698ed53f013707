from __future__ import annotations

import json

import pytest

from nas.common.errors import GenomeError
from nas.genome import Genome, Visibility, head_count, key_width
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS
from nas.genome.naming import digits_needed, find_name

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


def test_fields_beyond_the_published_form_round_trip() -> None:
    data = {
        "graph_def": [
            {"op": "qana", "inputs": ["q", "k"], "params": {"hidden": 2}},
            {"op": "softmax", "inputs": [0]},
            {"op": "weighted_sum", "inputs": [1, "v"]},
        ],
        "proj_config": dict.fromkeys(("has_wq", "has_wk", "has_wv", "has_wo"), True)
        | {"q_heads": "1/2", "raw": "shared"},
        "placement": "first",
        "visibility": {"window": 16, "global_tokens": 2},
    }
    genome = Genome.from_dict(data)
    assert genome.to_dict() == data
    assert genome.visibility == Visibility(16, 2)
    again = Genome.from_dict(json.loads(genome.to_json()))
    assert again == genome
    assert hash(again) == hash(genome)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"graph_def": 3}, ["graph_def: found int 3"]),
        ({"graph_def": [{"op": "softmax", "inputs": [-1]}]}, ["node 0 (softmax)", "int -1"]),
        ({"graph_def": [{"op": "softmax", "inputs": ["z"]}]}, ["'z'", "'q', 'k', 'v'"]),
        ({"graph_def": [{"op": "softmax"}]}, ["graph_def.0.inputs", "missing"]),
        ({"graph_def": [{"op": "add", "inputs": ["v"] * 17}]}, ["0.inputs", "at most 16"]),
        ({"graf": []}, ["'graf'", "did you mean 'graph_def'"]),
        ({"proj_config": {"q_heads": "1/3"}}, ["proj_config.q_heads: found str '1/3'", "'1/4'"]),
        ({"visibility": {"window": 0}}, ["visibility.window: found int 0", "1"]),
        ({"visibility": 8}, ["visibility: found int 8"]),
    ],
)
def test_errors_name_file_field_and_value(change: dict[str, object], words: list[str]) -> None:
    with pytest.raises(GenomeError) as caught:
        Genome.from_dict(CHAMPION | change, "some.json")
    message = str(caught.value)
    assert message.startswith("some.json")
    for word in words:
        assert word in message


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


def test_live_nodes_are_those_on_which_the_output_depends() -> None:
    data = {
        "graph_def": [
            {"op": "gelu", "inputs": ["v"]},
            {"op": "linear", "inputs": ["v"]},
            {"op": "gelu", "inputs": [1]},
        ]
    }
    assert Genome.from_dict(data).live() == (1, 2)


def test_names_have_the_operations_that_mha_does_not_have() -> None:
    names = {name: find_name(MECHANISMS[name].genome, "0123abcd") for name in ("mha", "sink")}
    assert names == {"mha": "attention-0123", "sink": "softmax_sink-0123"}
    of_finds = [find_name(each.genome, digest(each.genome)) for each in MECHANISMS.values()]
    assert len({*of_finds}) == len(MECHANISMS)


def test_as_many_digits_as_distinguish_all() -> None:
    assert digits_needed(["abcdef", "abcdff", "abcdff"]) == 5
    assert digits_needed(["abcdef"]) == digits_needed([]) == 4
