"""`nas doctor [RUN]`: this machine, its plug-ins, and the faults of a run."""

from __future__ import annotations

import json
import shutil
import sqlite3  # noqa: TID251 - to damage a file as no code of ours would
from pathlib import Path
from typing import Any


def findings(result: Any) -> dict[str, dict[str, Any]]:
    return {finding["about"]: finding for finding in json.loads(result.out)["findings"]}


def test_a_sound_machine_works(nas: Any) -> None:
    result = nas("doctor", "--json")
    assert result.status == 0
    assert json.loads(result.out)["works"] is True
    found = findings(result)
    assert set(found) == {
        *("versions", "processor", "GPU", "workers", "CIFAR-10", "runs", "plug-ins")
    }
    assert "torch " in found["versions"]["found"]
    assert "B free" in found["runs"]["found"]


def test_a_folder_of_runs_that_cannot_be_written_is_broken(nas: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = nas("doctor", "--runs", tmp_path / "file")
    assert result.status == 1
    assert f"runs: broken: 0 runs in {tmp_path}/file, which cannot be written" in result.out


def test_faults_of_a_run_are_listed(nas: Any, at_runs: Path, tmp_path: Path) -> None:
    result = nas("doctor", "example")
    assert (result.status, result.err) == (0, "")
    assert "run example: no faults" in result.out
    copy = shutil.copytree(at_runs, tmp_path / "example")
    with sqlite3.connect(copy / "run.sqlite") as damaged:
        damaged.execute("INSERT INTO answers VALUES ('question', '[')")
    result = nas("doctor", copy)
    assert (result.status, result.err) == (1, "")
    assert "run example: broken: " in result.out
    assert "holds a record that cannot be read" in result.out
    assert nas("doctor", "none").status == 2
