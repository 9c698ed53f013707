from __future__ import annotations

from itertools import product

import pytest

from nas.genome import LABELS, Genome
from nas.genome.types import common_heads, infer
from tests.genomes import build

STANDARD = (("scaled_dot_product", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"]))


def shown(genome: Genome) -> tuple[list[str], list[str]]:
    typing = infer(genome)
    assert not typing.problems, typing.problems
    return [str(typing.streams[s]) for s in "qkv"], [str(t) for t in typing.nodes]


@pytest.mark.parametrize(
    ("projections", "streams", "nodes"),
    [
        ({}, ["tokens[H, d/H]"] * 3, ["scores[H]", "weights[H]", "tokens[H, d/H]"]),
        (
            {"q_heads": "1/2", "kv_heads": "1/4", "qk_dim": "1/2"},
            ["tokens[1/2 H, 1/2 d/H]", "tokens[1/4 H, 1/2 d/H]", "tokens[1/4 H, d/H]"],
            ["scores[1/2 H]", "weights[1/2 H]", "tokens[1/2 H, d/H]"],
        ),
        # Reversed: the fewer query heads are repeated to the keys'.
        (
            {"q_heads": "1/4", "kv_heads": "1/2"},
            ["tokens[1/4 H, d/H]", "tokens[1/2 H, d/H]", "tokens[1/2 H, d/H]"],
            ["scores[1/2 H]", "weights[1/2 H]", "tokens[1/2 H, d/H]"],
        ),
        # Patterns: a query scored against the whole token takes the token's width.
        (
            {"has_wk": False, "raw": "shared"},
            ["tokens[H, d]", "tokens[1, d]", "tokens[H, d/H]"],
            ["scores[H]", "weights[H]", "tokens[H, d/H]"],
        ),
        # Messages: values are as wide as the model and need no W_O.
        (
            {"has_wo": False, "merge": "sum"},
            ["tokens[H, d/H]", "tokens[H, d/H]", "tokens[H, d]"],
            ["scores[H]", "weights[H]", "tokens[H, d]"],
        ),
    ],
)
def test_inference(projections: dict[str, object], streams: list[str], nodes: list[str]) -> None:
    assert shown(build(*STANDARD, **projections)) == (streams, nodes)


@pytest.mark.parametrize(
    ("nodes", "projections", "rule", "words"),
    [
        ((), {}, "empty", "no nodes"),
        ((("scaled_dot_product", "q"),), {}, "arity", "1 input"),
        (STANDARD[:2], {}, "output", "weights[H]"),
        (
            (("uniform", "v", {"heads": "3/4"}), ("weighted_sum", [0, "v"])),
            {"kv_heads": "1/2"},
            "heads",
            "with 3/4 and 1/2 heads",
        ),
        (STANDARD, {"has_wo": False, "merge": "sum", "has_wv": False}, "output", "sum"),
        (
            (("scaled_dot_product", "vk"), *STANDARD[1:]),
            {"has_wk": False, "raw": "shared"},
            "widths",
            "d/H and d",
        ),
    ],
)
def test_problems(
    nodes: tuple[object, ...], projections: dict[str, object], rule: str, words: str
) -> None:
    problems = infer(build(*nodes, **projections)).problems
    assert [p.rule for p in problems] == [rule]
    assert words in problems[0].found


def test_a_problem_is_reported_once_where_it_arises() -> None:
    found = build(("softmax", "q"), ("gelu", [0]), ("weighted_sum", [0, 1]))
    assert [(p.rule, p.node) for p in infer(found).problems] == [("types", 0)]


def test_common_heads_are_symmetric_and_multiples() -> None:
    for a, b in product(LABELS["q_heads"], repeat=2):
        assert common_heads(b, a) == common_heads(a, b)
        assert common_heads(a, b) in (a, b, None)
    assert common_heads("3/4", "1/4") == "3/4"
    assert common_heads("3/4", "1/2") is None
    assert common_heads("one", "3/4") == "3/4"


def test_roles_depend_on_what_is_added() -> None:
    found = build(
        ("scaled_dot_product", "qk"),
        ("bilinear", "qk"),
        ("add", [0, 1]),
        ("softmax", [2]),
        ("add", "vq"),
        ("weighted_sum", [3, 4]),
    )
    typing = infer(found)
    assert typing.role(2).value == "adjust"
    assert typing.role(4).value == "transform"
