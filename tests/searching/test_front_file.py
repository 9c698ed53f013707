"""The answer of `nas front --json`, and front.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nas.genome import Genome
from nas.searching.front_file import FRONT_FILE, run_answer, write_front
from nas.store import open_run


@pytest.fixture
def folder(kit: Any) -> Path:
    kit.search(kit.create(repeats=2, generations=2))
    return kit.root / "run"


def test_front_answer_has_the_stable_keys(folder: Path) -> None:
    with open_run(folder) as run:
        answer, members = run_answer(run), run.front()
    keys = {"run", "task", "seed", "objectives", "reference_point", "hypervolume", "counts"}
    assert keys | {"members"} <= set(answer)
    assert answer["objectives"] == [
        {"name": "accuracy", "direction": "max", "unit": "fraction"},
        {"name": "macs", "direction": "min", "unit": "MAC"},
    ]
    assert answer["reference_point"] == [0.1, 5e5]
    counts = answer["counts"]
    assert list(counts) == ["proposed", "evaluated", "repeated", "replayed", "rejected", "failed"]
    ends = ("evaluated", "repeated", "replayed", "rejected")
    assert counts["proposed"] == sum(counts[name] for name in ends)
    for found, member in zip(answer["members"], members, strict=True):
        assert {"id", "objectives", "genome", "formula"} <= set(found)
        assert list(found["objectives"]) == ["accuracy", "macs"]
        assert (found["id"], found["repeats"]) == (member.digest, 2)
        assert found["standard_errors"]["macs"] == 0.0 < found["standard_errors"]["accuracy"]
        assert found["objectives"]["accuracy"] != found["scores"]["accuracy"]
        assert 0 < found["p_non_dominated"] <= 1
        assert Genome.from_dict(found["genome"]) == member.proposal.genome


def test_damaged_or_missing_front_file_is_written_again(folder: Path) -> None:
    path = folder / FRONT_FILE
    with open_run(folder) as run:
        right = write_front(run).read_bytes()
        assert json.loads(right) == run_answer(run)
        for content in (b"", right[:-10], None):
            path.unlink() if content is None else path.write_bytes(content)
            write_front(run)
            assert path.read_bytes() == right
        before = path.stat().st_mtime_ns
        write_front(run)
        assert path.stat().st_mtime_ns == before
    assert list(folder.glob(".front*")) == []
