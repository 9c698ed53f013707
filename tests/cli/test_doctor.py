"""`nas doctor [RUN]`: this machine, its plug-ins, and the faults of a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from nas.common import registry
from nas.common.errors import DeviceError
from nas.genome.primitives.base import REGISTRY
from nas.training import hardware


def findings(result: Any) -> dict[str, dict[str, Any]]:
    return {finding["about"]: finding for finding in json.loads(result.out)["findings"]}


def test_a_sound_machine_works(nas: Any) -> None:
    result = nas("doctor", "--json")
    assert result.status == 0
    assert json.loads(result.out)["works"] is True
    found = findings(result)
    assert set(found) == {
        *("versions", "processor", "GPU", "workers", "CIFAR-10", "runs", "plug-ins"),
    }
    assert "torch " in found["versions"]["found"]
    assert "B free" in found["runs"]["found"]


def test_a_folder_of_runs_that_cannot_be_written_is_broken(nas: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = nas("doctor", "--runs", tmp_path / "file")
    assert result.status == 1
    assert f"runs: broken: 0 runs in {tmp_path}/file, which cannot be written" in result.out


def test_gpus_that_torch_cannot_use_are_broken(nas: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def unusable() -> int:
        raise DeviceError("the driver is too old")

    monkeypatch.setattr(hardware, "usable_gpus", unusable)
    result = nas("doctor")
    assert result.status == 1
    assert "GPU: broken: the driver is too old" in result.out


def test_broken_plugins_are_named(nas: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = registry.Plugin("nas.primitives", "mine", "mine", "a-package", "1.0", (), "no module")
    monkeypatch.setattr(REGISTRY, "_plugins", [broken])
    result = nas("doctor")
    assert result.status == 1
    assert "plug-in mine: broken: nas.primitives of a-package 1.0: no module" in result.out


def test_faults_of_a_run_are_listed(nas: Any, at_runs: Path, tmp_path: Path) -> None:
    result = nas("doctor", "example")
    assert (result.status, result.err) == (0, "")
    assert "run example: no faults" in result.out
    copy = shutil.copytree(at_runs, tmp_path / "example")
    (copy / "front.json").write_text("{}")
    result = nas("doctor", copy)
    assert (result.status, result.err) == (1, "")
    assert "run example: broken: " in result.out
    assert "front.json: does not say what the record says" in result.out
    assert nas("doctor", "none").status == 2
