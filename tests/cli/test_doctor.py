"""`nas doctor [RUN]`: this machine, its plug-ins, and the faults of a run."""

from __future__ import annotations

import json
import shutil
import sqlite3  # noqa: TID251 - to damage a file as no code of ours would
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from nas.store import open_run
from nas.store.weights import weights_path

ROOT = Path(__file__).resolve().parents[2]


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


def test_faults_of_a_run_are_listed(nas: Any, tmp_path: Path) -> None:
    run = shutil.copytree(ROOT / "runs" / "example", tmp_path / "example")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    result = nas("doctor", run)
    assert (result.status, result.err) == (0, "")
    assert "run example: no faults" in result.out
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    with open_run(run) as recorded:
        lost, spoilt, other, *_ = (weights_path(run, member.key) for member in recorded.front())
    lost.unlink()
    spoilt.write_bytes(b"none")
    save_file({name: t * torch.nan for name, t in load_file(other).items()}, other)
    result = nas("doctor", run)
    assert (result.status, result.err) == (1, "")
    for words in (
        f"{lost.name}: no weights can be read",
        f"{spoilt.name}: no weights can be read",
        f"{other.name}: its weights are not those of the mechanism: ",
    ):
        assert result.out.count(words) == 1
    assert result.out.count("run example: broken: ") == 3
    with sqlite3.connect(run / "run.sqlite") as damaged:
        damaged.execute("INSERT INTO answers VALUES ('question', '[')")
    assert "holds a record that cannot be read" in nas("doctor", run).out
    assert nas("doctor", "none").status == 2
