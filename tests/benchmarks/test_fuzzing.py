"""Hostile inputs raise only our errors, and the observer detects each kind of violation."""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path

import pytest

from benchmarks.fuzzing import watching
from benchmarks.fuzzing.running import KINDS, run_inputs
from benchmarks.fuzzing.watching import observe


@pytest.fixture(autouse=True)
def _isolated_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Restore the environment that inputs change."""
    monkeypatch.setenv("NAS_CACHE", str(tmp_path))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.slow
def test_hostile_inputs_cause_no_faults(tmp_path: Path) -> None:
    kinds = set()
    for result in run_inputs(3_000, 1, tmp_path):
        assert not result.observation.faults, f"{result.name}: {result.observation.faults}"
        kinds.add(result.kind)
    assert kinds == {*KINDS}


def _loop() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda outside: 1 // 0, "ZeroDivisionError"),
        (lambda outside: outside.write_text("x"), "open outside its folder"),
        (lambda outside: outside.mkdir(), "os.mkdir outside its folder"),
        (lambda outside: subprocess.run(["true"]), "subprocess.Popen"),
        (lambda outside: pickle.loads(pickle.dumps(Path)), "pickle.find_class"),
        (lambda outside: bytearray(b"x" * 600_000_000), "MB"),
        (lambda outside: _loop(), "takes longer than"),
    ],
)
def test_observer_reports_violations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work, words: str
) -> None:
    monkeypatch.setattr(watching, "MAX_SECONDS", 0.2)
    folder = tmp_path / "folder"
    folder.mkdir()
    faults = observe(lambda: work(tmp_path / "outside"), folder).faults
    assert words in " ".join(faults)
