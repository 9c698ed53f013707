"""``nas spaces``, ``tasks`` and ``primitives``."""

from __future__ import annotations

import json
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("command", "name", "fact"),
    [
        ("spaces", "attention_v2", "Every primitive that suits a task of one size"),
        ("tasks", "bytes", "Predict the next byte of a text"),
        ("primitives", "softmax", "Softmax"),
    ],
)
def test_list_describes_what_there_is(nas: Any, command: str, name: str, fact: str) -> None:
    listed = nas(command)
    assert listed.status == 0, listed.err
    assert name in listed.out
    answer = json.loads(nas(command, "--json").out)
    assert fact in answer[name]
    assert all(answer.values())


def test_search_without_a_space_names_the_spaces(nas: Any) -> None:
    result = nas("search", "--gens", 1)
    assert result.status == 2
    assert "attention_v2, bytes_bench" in result.err
    assert "nas spaces" in result.err
