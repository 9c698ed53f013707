"""Hostile inputs of all kinds end in a sentence; and the watch over them sees what it must see."""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path

import pytest

from benchmarks.fuzzing import watching
from benchmarks.fuzzing.running import KINDS, inputs, one
from benchmarks.fuzzing.watching import watched
from nas.common.errors import ConfigError


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What an input leaves behind in the process ends with the test."""
    monkeypatch.setenv("NAS_CACHE", str(tmp_path))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.setenv("NO_COLOR", "1")


def test_hostile_inputs_end_in_a_sentence(tmp_path: Path) -> None:
    kinds = set()
    for found in inputs(300, 0, tmp_path):
        assert not found.seen.faults, f"{found.name}: {found.seen.faults}"
        kinds.add(found.kind)
    assert kinds == {*KINDS}


@pytest.mark.slow
def test_many_hostile_inputs_end_in_a_sentence(tmp_path: Path) -> None:
    for found in inputs(3_000, 1, tmp_path):
        assert not found.seen.faults, f"{found.name}: {found.seen.faults}"


def test_an_input_is_made_again_by_its_name(tmp_path: Path) -> None:
    contents = []
    for place in ("a", "b"):
        folder = tmp_path / place
        folder.mkdir()
        one("task", 3, 7, folder)
        contents.append({path.name: path.read_bytes() for path in (folder / "task").iterdir()})
    assert contents[0] == contents[1]
    assert contents[0]


def test_watch_takes_what_is_well_and_what_is_refused(tmp_path: Path) -> None:
    seen = watched(lambda: (tmp_path / "inside").write_text("x"), tmp_path)
    assert (seen.outcome, seen.faults) == ("taken", [])

    def refuse() -> None:
        raise ConfigError("no")

    seen = watched(refuse, tmp_path)
    assert (seen.outcome, seen.faults) == ("refused", [])


def _turn() -> None:
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
        (lambda outside: _turn(), "takes longer than"),
    ],
)
def test_watch_sees_what_an_input_must_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work, words: str
) -> None:
    monkeypatch.setattr(watching, "MAX_SECONDS", 0.2)
    own = tmp_path / "own"
    own.mkdir()
    found = " ".join(watched(lambda: work(tmp_path / "outside"), own).faults)
    assert words in found
