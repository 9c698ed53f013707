"""``nas spaces``, ``tasks`` and ``primitives``."""

from __future__ import annotations

import json
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("command", "name", "fact"),
    [
        ("spaces", "quickstart", "A small space for a first look"),
        ("tasks", "bytes", "Predict the next byte of a text"),
        ("primitives", "softmax", "Softmax"),
    ],
)
def test_lists_and_their_entries_are_shown(nas: Any, command: str, name: str, fact: str) -> None:
    listed = nas(command)
    assert listed.status == 0, listed.err
    assert name in listed.out
    answer = json.loads(nas(command, "--json").out)
    assert fact in answer[name]
    assert all(answer.values())
    shown = nas(command, name)
    assert shown.status == 0, shown.err
    answer = json.loads(nas(command, name, "--json").out)
    assert name in answer.get("name", answer.get("path"))
    assert answer.get("code", answer.get("text")).rstrip() in shown.out
    wrong = nas(command, name[:-1])
    assert wrong.status == 2
    assert f"did you mean '{name}'?" in wrong.err
    absent = nas(command, "nowhere.yaml")
    assert absent.status == 2
    assert absent.err.count("\n") == 1


def test_search_without_a_space_names_the_spaces(nas: Any) -> None:
    result = nas("search", "--gens", 1)
    assert result.status == 2
    assert "attention_v2, hybrid_causal" in result.err
    assert "nas spaces" in result.err
