"""The answer of `nas front --json`: stable keys, from the record alone."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from nas.errors import RunError
from nas.genome import Genome
from nas.searching.front_file import FRONT_FILE, front_answer, write_front
from nas.store import front, open_run


@pytest.fixture
def answer(kit: Any) -> dict[str, Any]:
    kit.search(kit.create(repeats=2))
    with open_run(kit.root / "run") as run:
        return front_answer(run)


def test_front_answer_has_the_stable_keys(answer: dict[str, Any]) -> None:
    keys = {"run", "task", "seed", "objectives", "reference_point", "hypervolume", "counts"}
    assert keys | {"members"} <= set(answer)
    assert answer["objectives"] == [
        {"name": "accuracy", "direction": "max", "unit": "fraction"},
        {"name": "macs", "direction": "min", "unit": "MAC"},
    ]
    assert answer["reference_point"] == [0.1, 5e5]
    counts = answer["counts"]
    assert list(counts) == ["proposed", "evaluated", "replayed", "rejected", "failed"]
    assert counts["proposed"] == counts["evaluated"] + counts["replayed"] + counts["rejected"]
    for member in answer["members"]:
        assert {"id", "objectives", "genome", "formula"} <= set(member)
        assert list(member["objectives"]) == ["accuracy", "macs"]


def test_front_answer_members_are_genomes_of_the_front(kit: Any, answer: dict[str, Any]) -> None:
    with open_run(kit.root / "run") as run:
        members = front(run)
    assert [m["id"] for m in answer["members"]] == [m.digest for m in members]
    assert [Genome.from_dict(m["genome"]) for m in answer["members"]] == [
        m.proposal.genome for m in members
    ]
    assert all(m["repeats"] == 2 and m["standard_errors"]["macs"] == 0.0 for m in answer["members"])


def test_front_answer_of_a_run_without_results_is_empty(kit: Any) -> None:
    kit.create().close()
    with open_run(kit.root / "run") as run:
        answer = front_answer(run)
    assert (answer["members"], answer["hypervolume"]) == ([], 0.0)


def test_front_file_is_the_answer(kit: Any, answer: dict[str, Any]) -> None:
    assert json.loads((kit.root / "run" / FRONT_FILE).read_text()) == answer
    assert [path.name for path in (kit.root / "run").glob(".front*")] == []


def test_front_file_that_cannot_be_written_is_an_error(kit: Any) -> None:
    with kit.create() as writer:
        (writer.run.folder / FRONT_FILE).mkdir()
        with pytest.raises(RunError, match=r"front\.json: cannot be written .*record.*is whole"):
            write_front(writer.run)
        assert list(writer.run.folder.glob(".front*")) == []


def test_front_file_that_is_stale_or_missing_is_mended(kit: Any, answer: dict[str, Any]) -> None:
    path = kit.root / "run" / FRONT_FILE
    right = path.read_bytes()
    with open_run(kit.root / "run") as run:
        for content in (b"", right[:-10], None):
            path.unlink() if content is None else path.write_bytes(content)
            write_front(run)
            assert path.read_bytes() == right
        before = path.stat().st_mtime_ns
        write_front(run)
        assert path.stat().st_mtime_ns == before


def test_front_file_is_read_without_torch_or_pymoo() -> None:
    code = (
        "import sys, nas.searching.front_file; "
        "print([name for name in ('torch', 'pymoo', 'ray') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
