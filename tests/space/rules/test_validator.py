from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nas.common.errors import ConfigError
from nas.genome.mechanisms import MECHANISMS
from nas.space.rules import Policy, Violation, load_policy, validate
from tests.genomes import build

OURS = load_policy("score_normalize_aggregate")
PUBLISHED = load_policy("published_2025")
TWO_STAGE = load_policy("two_stage")

SCORE, NORM = ("scaled_dot_product", "qk"), ("softmax", [0])
STANDARD = (SCORE, NORM, ("weighted_sum", [1, "v"]))
TWICE = (*STANDARD, ("scaled_dot_product", [2, "k"]), ("softmax", [3]), ("weighted_sum", [4, "v"]))

# The published system's truth table (what its validator says, blind spots included), and ours.
TABLE = {
    "standard": (STANDARD, True, True),
    "score of v and v": ((("scaled_dot_product", "vv"), *STANDARD[1:]), True, True),
    "top-k before softmax": (
        (SCORE, ("topk_filter", [0]), ("softmax", [1]), ("weighted_sum", [2, "v"])),
        False,
        True,
    ),
    "sum of two scores": (
        (SCORE, ("bilinear", "qk"), ("add", [0, 1]), ("softmax", [2]), ("weighted_sum", [3, "v"])),
        False,
        True,
    ),
    "v times q as values": (
        (SCORE, NORM, ("multiply", "vq"), ("weighted_sum", [1, 2])),
        False,
        True,
    ),
    "something after the sum": ((*STANDARD, ("gelu", [2])), False, True),
    "multiply as score": ((("multiply", "qk"), NORM, ("weighted_sum", [1, "v"])), False, False),
    "score with one input": ((("scaled_dot_product", "q"), *STANDARD[1:]), True, False),
    "value node without inputs": (
        (SCORE, NORM, ("gelu", []), ("weighted_sum", [1, 2])),
        True,
        False,
    ),
    "score of scores": (
        (
            SCORE,
            SCORE,
            ("scaled_dot_product", [0, 1]),
            ("softmax", [2]),
            ("weighted_sum", [3, "v"]),
        ),
        True,
        False,
    ),
    "empty": ((), False, False),
    "no normaliser": ((SCORE, ("weighted_sum", [0, "v"])), False, False),
    "values from q": ((SCORE, NORM, ("weighted_sum", [1, "q"])), False, False),
    "scores as values": ((SCORE, NORM, ("weighted_sum", [1, 0])), False, False),
    "weights from a stream": ((("weighted_sum", "qv"),), False, False),
    "attention of attention": (TWICE, True, False),
    "raw q added to the output": ((*STANDARD, ("add", [2, "q"])), False, False),
    "raw q times the output": ((*STANDARD, ("multiply", [2, "q"])), False, False),
}


@pytest.mark.parametrize("name", TABLE)
def test_truth_table(name: str) -> None:
    nodes, published, ours = TABLE[name]
    assert (not validate(build(*nodes), PUBLISHED)) == published
    assert (not validate(build(*nodes), OURS)) == ours


def test_every_mechanism_is_legal_and_the_champion_under_both_policies() -> None:
    for name, mechanism in MECHANISMS.items():
        assert not validate(mechanism.genome, OURS), name
        assert not validate(mechanism.genome, TWO_STAGE), name
    assert not validate(MECHANISMS["champion_2025"].genome, PUBLISHED)


def only(violations: tuple[Violation, ...]) -> Violation:
    assert len(violations) == 1
    return violations[0]


def test_a_violation_has_a_witness_from_stream_to_place() -> None:
    found = validate(build(*TWICE), OURS)
    assert [v.rule for v in found] == ["weights_path"]
    assert found[0].path == (
        "q",
        "0:scaled_dot_product",
        "1:softmax",
        "2:weighted_sum",
        "3:scaled_dot_product",
        "4:softmax",
        "5:weighted_sum.weights",
    )
    assert found[0].found == "score normalize aggregate score normalize"
    assert "-> 2:weighted_sum ->" in found[0].message


def test_all_paths_are_followed() -> None:
    """One operand of the sum is sound, the other is a score that was never normalised."""
    good = build(SCORE, NORM, ("gelu", "v"), ("add", ["v", 2]), ("weighted_sum", [1, 3]))
    assert not validate(good, OURS)
    bad = build(*STANDARD, ("add", [2, "v"]))
    assert only(validate(bad, OURS)).path == ("v", "3:add", "output")


def test_a_missing_path_is_reported() -> None:
    violation = only(validate(build(SCORE, NORM, ("weighted_sum", [1, "k"])), OURS))
    assert violation.rule == "values_from"
    assert "no path from input.v" in violation.found


def test_unread_nodes_break_no_path_rule() -> None:
    spare = ("weighted_sum", [1, "q"])
    assert not validate(build(SCORE, NORM, spare, ("weighted_sum", [1, "v"])), OURS)


def test_a_long_chain_is_linear_work() -> None:
    """2^60 paths: only an automaton that follows all at once ever ends."""
    doubled = [("add", "vv"), *(("add", [i, i]) for i in range(60))]
    n = len(doubled)
    found = build(*doubled, SCORE, ("softmax", [n]), ("weighted_sum", [n + 1, n - 1]))
    assert not validate(found, OURS)
    broken = build(
        *doubled, SCORE, ("softmax", [n]), ("weighted_sum", [n + 1, n - 1]), ("add", [n + 2, n - 1])
    )
    assert only(validate(broken, OURS)).rule == "output"


@pytest.mark.parametrize(
    ("before", "changed", "after"),
    [
        ((), (), ()),
        (("topk_filter",), ("talking_heads",), ("linear",)),
        ((), ("head_difference",), ("layer_norm", "gelu")),
        ((), (), ("swish_gate",)),
    ],
)
def test_constant_mechanisms_are_refused(
    before: tuple[str, ...], changed: tuple[str, ...], after: tuple[str, ...]
) -> None:
    """Squared rectifiers of negative distances are zero for every pair of tokens."""
    nodes: list[tuple[str, Any]] = [("distance", "qk")]
    nodes += [(op, [i]) for i, op in enumerate((*before, "relu_squared", *changed))]
    nodes.append(("weighted_sum", [len(nodes) - 1, "v"]))
    nodes += [(op, [len(nodes) + i - 1]) for i, op in enumerate(after)]
    (found,) = validate(build(*nodes), OURS)
    assert found.rule == "constant"
    assert "expected 'an output that depends on the tokens'" in found.message
    gated = build(*nodes, ("add", [len(nodes) - 1, "v"]))
    assert "constant" not in {violation.rule for violation in validate(gated, OURS)}


def test_tokens_without_their_projection_onto_themselves_are_refused() -> None:
    own = build(*STANDARD, ("exclude_value", [2, 2]), ("swish_gate", [3]))
    assert [violation.rule for violation in validate(own, OURS)] == ["constant"]
    assert not validate(build(*STANDARD, ("exclude_value", [2, "v"])), OURS)


RULE = "{name: r, to: output, from: input, match: '.* aggregate'}"


def read(folder: Path, text: str) -> Policy:
    path = folder / "mine.yaml"
    path.write_text(text)
    return load_policy(str(path))


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("[{name: r, to: output, from: input, match: 'scor'}]", ["'r'", "did you mean 'score'"]),
        ("[{name: r, to: output, from: input, match: 'score ) gate'}]", ["'r'", "')'"]),
        (
            f"[{{name: r, to: output, from: input, match: '{'(' * 70}score{')' * 70}'}}]",
            ["'r'", "parentheses"],
        ),
        (
            "[{name: r, to: aggregate.weight, from: input, match: score}]",
            ["place 'aggregate.weight'", "did you mean 'aggregate.weights'"],
        ),
        ("[{name: r, to: output}]", ["exactly one of"]),
        ("[{name: r, to: output, some: input.v, none: input.q}]", ["exactly one of"]),
        (
            "[{name: r, to: output, from: input, match: '.* softmax" + " ." * 40 + "'}]",
            ["'r'", "states"],
        ),
        (f"[{', '.join([RULE] * 65)}]", ["rules", "at most 64 items"]),
    ],
)
def test_a_malformed_rule_is_named(tmp_path: Path, rules: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"name: mine\nrules: {rules}\n")
    assert "mine.yaml" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_an_empty_expression_matches_the_empty_path_only(tmp_path: Path) -> None:
    rule = "{name: bare, to: aggregate.values, from: input, match: ''}"
    policy = read(tmp_path, f"name: mine\nrules: [{rule}]\n")
    score, norm = ("scaled_dot_product", "qk"), ("softmax", [0])
    assert not validate(build(score, norm, ("weighted_sum", [1, "v"])), policy)
    assert validate(build(score, norm, ("gelu", "v"), ("weighted_sum", [1, 2])), policy)
