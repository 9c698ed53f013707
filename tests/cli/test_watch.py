"""Commands that watch a run of another process: they show its progress and write nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nas.report import display
from nas.report.display import Display, follow
from nas.store import open_writer, this_session
from tests.recorded_run import record_run
from tests.report.conftest import Printed

# A process that begins a session, prints a line, and waits to be killed.
WRITER = """
import sys, time
from pathlib import Path
from nas.store import open_writer, this_session
with open_writer(Path(sys.argv[1]), this_session("nas resume")):
    print("there", flush=True)
    time.sleep(600)
"""


def test_watch_of_a_finished_run_prints_its_front_and_writes_nothing(
    nas: Any, at_runs: Path
) -> None:
    before = state(at_runs)
    watched, front = nas("watch", "example"), nas("front", "example")
    assert watched.status == 0
    first, _, rest = watched.out.partition("\n")
    assert first.startswith("generation 3 of 3: 36 of 36 trainings, best ")
    for words in ("knee ", "cheapest ", "hypervolume 0.", "1 failed"):
        assert words in first
    assert rest == front.out
    assert state(at_runs) == before


def test_watch_reads_each_change_until_the_run_finishes(tmp_path: Path) -> None:
    folder = record_run(tmp_path, generations=1, is_finished=False)
    writer = open_writer(folder, this_session("nas resume"))
    pipe = Printed()
    steps: list[Callable[[], None]] = [
        lambda: None,
        lambda: None,
        lambda: writer.raise_generations(5),
        lambda: None,
        writer.finish,
    ]

    def sleep(seconds: float) -> None:
        assert seconds >= display.PAUSE_SECONDS
        steps.pop(0)()

    shown = Display(pipe.console)
    assert follow(folder, shown, sleep=sleep) == "finished"
    writer.close()
    assert steps == []
    [line] = pipe.lines  # one a generation
    assert line.startswith("generation 1 of 1: 12 of 12 trainings")
    assert shown.line.startswith("generation 1 of 5: 12 of 60 trainings")


def test_watch_reports_a_killed_writer(
    nas: Any, recorded_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_folder = shutil.copytree(recorded_run, tmp_path / "runs" / "example")
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, run_folder], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    process.kill()
    process.communicate()
    monkeypatch.setattr(display, "PAUSE_SECONDS", 0.01)
    before = state(run_folder)
    result = nas("watch", run_folder)
    assert result.status == 1
    assert f"process {process.pid} on " in result.err
    assert "it was killed, or its machine went down" in result.err
    assert f"`nas resume {run_folder}` goes on" in result.err
    after = state(run_folder)
    for name in ("run.sqlite", "run.sqlite-wal", "run.sqlite-shm"):  # SQLite merges its log
        after.pop(name, None), before.pop(name, None)
    assert after == before


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of each file of a folder."""
    files = [path for path in folder.iterdir() if path.is_file()]
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
