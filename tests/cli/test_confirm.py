"""A small search on digits is confirmed from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TINY = """
name: tiny
kind: images
data: digits
image_size: 8
patch: 2
width: 16
depth: 1
heads: 2
epochs: 1
train_images: 128
validation_images: 100
"""


def test_a_search_on_digits_is_confirmed(
    nas: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    Path("more.yaml").write_text(TINY.replace("epochs: 1", "epochs: 2").replace("tiny", "more"))
    local = ("--backend", "local")
    searched = nas("search", "--space", "quickstart", "--task", "tiny.yaml", "--gens", 2, "--pop",
                   5, "--run", "a", *local)  # fmt: skip
    assert "`nas confirm a`" in searched.out
    options = ("--members", 1, "--seeds", 2, "--long", "more.yaml", "--test", *local)
    shown = nas("confirm", "a", *options)
    assert shown.status == 0
    for word in ("mechanism", "score", "estimate", "fresh", "long", "test", "over mha", "uniform"):
        assert word in shown.out
    trained = shown.err.count("accuracy")
    result = nas("confirm", "a", *options, "--json")
    answer = json.loads(result.out)
    assert result.err == ""  # nothing is trained again
    assert trained == 3 * 2 * len(answer["members"])
    assert (answer["run"], answer["seeds"]) == ("a", 2)
    for one in answer["members"]:
        assert {"id", "name", "score", "estimate", "error", "p", "costs"} <= one.keys()
        for part in ("fresh", "long", "test"):
            assert len(one[part]["values"]) == 2
    front = json.loads(nas("front", "a", "--json").out)
    confirmed = {one["id"]: one for one in answer["members"]}
    members = [m["id"] for m in front["members"] if m["id"] in confirmed]
    assert members
    for digest in members:
        told = {part: confirmed[digest][part] for part in ("fresh", "long", "test")}
        assert front["confirmed"][digest] == told
    pictured = nas("front", "a", "--plot", "front.svg")
    assert "fresh, long, test: means of trainings with fresh seeds" in pictured.out
    assert "with fresh seeds" in Path("front.svg").read_text()
    refused = nas("confirm", "b", *local)
    assert refused.status == 2
    assert len(refused.err.splitlines()) == 1
