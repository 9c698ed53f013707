"""Commands that watch a run of another process: they show its progress and write nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nas.report import display
from nas.report.display import Display, follow, why_stopped
from nas.report.progress import change_line, read_progress
from nas.store import RunWriter, change_token, open_run, open_writer, this_session
from tests.cli.conftest import TINY
from tests.recorded_run import NOON, MakeRun, go_on
from tests.report.conftest import Printed
from tests.report.page.conftest import limit_macs

PROGRAM = (sys.executable, "-c", "import sys; from nas.cli import main; main(sys.argv[1:])")
PIPES: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
# A process that begins a session, prints a line, and waits to be killed.
WRITER = """
import sys, time
from pathlib import Path
from nas.store import open_writer, this_session
with open_writer(Path(sys.argv[1]), this_session("nas resume")):
    print("there", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def run_folder(recorded_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(recorded_run, tmp_path / "runs" / "example")


def test_watch_of_a_finished_run_prints_its_front_and_writes_nothing(
    nas: Any, at_runs: Path
) -> None:
    before = state(at_runs)
    watched, front = nas("watch", "example"), nas("front", "example")
    assert watched.status == 0
    first, _, rest = watched.out.partition("\n")
    assert first.startswith("36 of 36 trainings, generation 3 of 3: ")
    for words in ("(1 failed)", "hypervolume 0.", "best ", "knee ", "cheapest ", "0 of 2 busy"):
        assert words in first
    assert rest == front.out
    assert state(at_runs) == before


def test_run_with_nothing_within_its_limits_can_be_watched_and_read(
    nas: Any, recorded_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_macs(recorded_run, tmp_path / "runs" / "narrow", 1.0)
    monkeypatch.chdir(tmp_path)
    watched = nas("watch", "narrow")
    assert watched.status == 0
    assert "trained mechanisms is within the limits (MACs at most 1)" in watched.out
    assert "`nas front narrow --all --csv FILE`" in watched.out
    assert nas("front", "narrow").status == nas("front", "narrow", "--csv", "-").status == 1
    whole = nas("front", "narrow", "--csv", "-", "--all")
    assert whole.status == 0
    with open_run(tmp_path / "runs" / "narrow") as run:
        trained = [c for c in run.candidates() if c.is_ok]
    assert len(whole.out.splitlines()) == 1 + len(trained) > 10


def test_watch_prints_a_line_per_change_until_the_run_finishes(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path, generations=1, is_finished=False)
    writer = open_writer(folder, this_session("nas resume"))
    pipe, read = Printed(), 0

    def opened(path: Path) -> Any:
        nonlocal read
        read += 1
        return open_run(path)

    monkeypatch.setattr(display, "open_run", opened)
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

    shown = Display(pipe.console, is_watching=True)
    assert follow(folder, shown, sleep=sleep) == "finished"
    writer.close()
    assert steps == []
    # The database is not opened if its files did not change.
    assert read == len(pipe.lines) == 3
    totals = [line.split(",")[0] for line in pipe.lines]
    assert totals == ["12 of 12 trainings", *2 * ["12 of 60 trainings"]]
    assert shown.progress is not None
    assert pipe.lines[-1] == change_line(shown.progress, time.time())


def test_reading_does_not_block_the_writer(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(tmp_path, generations=1, is_finished=False)
    writer: RunWriter = open_writer(folder, this_session("nas resume"))
    with open_run(folder) as run, run.snapshot():
        read_progress(run)
        began = time.monotonic()
        writer.raise_generations(7)
        # SQLite would wait for ten seconds before it refuses.
        assert time.monotonic() - began < 5
        assert run.setup.config.generations == 1
    with open_run(folder) as run:
        assert read_progress(run).setup.config.generations == 7
    writer.close()
    assert sorted(path.name for path in folder.glob("run.sqlite*")) == ["run.sqlite"]


def test_watch_reports_a_killed_writer(
    nas: Any, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, run_folder], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    living = change_token(run_folder)
    process.kill()
    process.communicate()
    assert change_token(run_folder) != living
    monkeypatch.setattr(display, "PAUSE_SECONDS", 0.01)
    before = state(run_folder)
    result = nas("watch", run_folder)
    assert result.status == 1
    assert f"process {process.pid} on " in result.err
    assert "it was killed, or its machine went down" in result.err
    assert f"`nas resume {run_folder}` goes on" in result.err
    after = state(run_folder)
    after.pop("run.sqlite-shm", None), before.pop("run.sqlite-shm", None)  # SQLite's own notes
    assert after == before


def test_watch_reports_when_a_run_was_stopped(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(tmp_path, generations=1, is_finished=False)
    assert follow(folder, Display(Printed().console), sleep=lambda _: None) == "stopped"
    with open_run(folder) as run:
        assert f"it was stopped at {NOON.astimezone():%Y-%m-%d} " in why_stopped(run)


def test_follow_reads_a_stopped_run_twice(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(tmp_path, generations=1, is_finished=False)
    assert follow(folder, Display(Printed().console), sleep=lambda _: go_on(folder)) == "finished"


def test_interrupted_watch_exits_with_130(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(tmp_path, generations=1, is_finished=False)
    with open_writer(folder, this_session("nas resume")):
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen([*PROGRAM, "watch", folder], env=environment, **PIPES)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("12 of 12 trainings")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_web_page_is_served_at_the_printed_address(run_folder: Path) -> None:
    process = subprocess.Popen([*PROGRAM, "watch", run_folder, "--web"], **PIPES)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert "<title>example · nas report</title>" in answer.read().decode()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err


def test_search_is_watched_killed_and_resumed(
    nas: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    common = ("--backend", "local", "--tensorboard", "events")
    options = ("--space", "quickstart", "--task", "tiny.yaml", "--gens", "3", "--pop", "3")
    command = [*PROGRAM, "search", *options, "--run", "a", *common]
    search = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert search.stdout is not None
    next(line for line in search.stdout if line.startswith("generation 1 of 3"))
    search.send_signal(signal.SIGSTOP)  # it must not end before the watching process reads it
    watch = subprocess.Popen([*PROGRAM, "watch", "a"], **PIPES)
    assert watch.stdout is not None
    assert " of 9 trainings, generation " in watch.stdout.readline()
    search.kill()
    search.communicate()
    _, err = watch.communicate(timeout=60)
    assert watch.returncode == 1
    assert f"process {search.pid} on " in err
    assert nas("resume", "a", *common).status == 0
    assert nas("watch", "a").status == 0
    assert nas("tensorboard", "a", "again").status == 0
    assert event_folders("again") == event_folders("events")


def event_folders(folder: str) -> list[str]:
    return sorted(str(p.parent.relative_to(folder)) for p in Path(folder).rglob("*.tfevents.*"))


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of each file of a folder."""
    files = [path for path in folder.iterdir() if path.is_file()]
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_token_of_a_run_with_a_link_in_a_circle(tmp_path: Path) -> None:
    """Opening such a database is refused; the token, which is computed before, must not fail."""
    link = tmp_path / "run.sqlite-wal"
    link.symlink_to(link)
    assert change_token(tmp_path)
