from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nas.errors import ConfigError, PolicyError
from nas.validation import load_policy

if TYPE_CHECKING:
    from pathlib import Path

RULE = "{name: r, to: output, from: input, match: '.* aggregate'}"


@pytest.mark.parametrize("name", ["score_normalize_aggregate", "published_2025", "two_stage"])
def test_shipped_policies_compile(name: str) -> None:
    assert load_policy(name).name == name


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("[{name: r, to: output, from: input, match: 'scor'}]", ["'r'", "did you mean 'score'"]),
        ("[{name: r, to: output, from: input, match: 'score (gate'}]", ["'r'", "not closed"]),
        ("[{name: r, to: outptu, from: input, match: score}]", ["'outptu'"]),
        (
            "[{name: r, to: aggregate.weight, from: input, match: score}]",
            ["port 'weight'", "did you mean 'weights'"],
        ),
        ("[{name: r, to: output, from: inputs, match: score}]", ["'inputs'", "input.v"]),
        ("[{name: r, to: output}]", ["exactly one of"]),
        ("[{name: r, to: output, from: input}]", ["needs 'match'"]),
        ("[{name: r, to: output, some: input.v, none: input.q}]", ["exactly one of"]),
        (f"[{RULE}, {RULE}]", ["two rules", "'r'"]),
        ("[{name: r, too: output}]", ["'too'", "did you mean 'to'"]),
    ],
)
def test_a_malformed_rule_is_named(tmp_path: Path, rules: str, words: list[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\nrules: {rules}\n")
    with pytest.raises(ConfigError) as caught:
        load_policy(str(path))
    assert "mine.yaml" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_an_unknown_word_in_arity_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\narity: {{softmx: 1}}\nrules: [{RULE}]\n")
    with pytest.raises(PolicyError, match="did you mean 'softmax'"):
        load_policy(str(path))
