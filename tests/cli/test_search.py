"""``nas search`` and ``confirm``: a small search on digits from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import LOCAL


@pytest.mark.usefixtures("at_tasks")
def test_front_members_are_confirmed_once(nas: Any) -> None:
    options = ("--gens", 2, "--pop", 5, "--run", "a", *LOCAL)
    searched = nas("search", "--space", "quickstart", "--task", "tiny.yaml", *options)
    assert "`nas confirm a`" in searched.out
    options = ("--members", 1, "--seeds", 2, "--long", "more.yaml", "--test", *LOCAL)
    confirm = ("confirm", "a", *options)
    shown = nas(*confirm)
    assert shown.status == 0
    for title in ("mechanism", "score", "estimate", "fresh", "long", "test", "over mha", "uniform"):
        assert title in shown.out
    result = nas(*confirm, "--json")
    assert result.err == ""  # nothing is trained again
    answer = json.loads(result.out)
    members = {row["id"]: row for row in answer["rows"]}
    assert shown.err.count("accuracy") == 3 * 2 * len(members)
    assert (answer["run"], answer["seeds"]) == ("a", 2)
    for row in members.values():
        assert all(len(row["parts"][part]["values"]) == 2 for part in ("fresh", "long", "test"))
    front = json.loads(nas("front", "a", "--json").out)
    confirmed = [member for member in front["members"] if member["id"] in members]
    assert confirmed
    for member in confirmed:
        for part, shown_part in member["confirmed"].items():
            assert shown_part["values"] == members[member["id"]]["parts"][part]["values"]
    assert "fresh, long, test: " in nas("front", "a", "--plot", "front.svg").out
    assert "fresh seeds" in Path("front.svg").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("at_tasks")
def test_search_of_a_target_task(nas: Any) -> None:
    options = ("--gens", 5, "--pop", 8, "--run", "a", "--target", "more.yaml", *LOCAL)
    searched = nas("search", "--space", "quickstart", "--task", "tiny.yaml", *options)
    assert searched.status == 0
    assert json.loads(nas("front", "a", "--json").out)["task"] == "more"
    refused = nas("search", "--space", "quickstart", "--task", "tiny.yaml", "--target", "bytes")
    assert refused.status == 2
    assert "target: task 'bytes' is of the family 'bytes'" in refused.err
