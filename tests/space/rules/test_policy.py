from __future__ import annotations

from pathlib import Path

import pytest

from nas.common.errors import ConfigError
from nas.space.rules import Policy, load_policy, validate
from tests.genomes import build

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
