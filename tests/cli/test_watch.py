"""Watching a run from outside: what is seen is what its writer shows, and nothing is changed."""

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

from nas.cli import following
from nas.cli.following import Watched, change_line, follow, why_stopped
from nas.cli.progress import Progress
from nas.searching.listener import Evaluated, GenerationDone, Listener
from nas.store import RunWriter, open_run, open_writer, stamp, this_session
from tests.cli.test_confirm import TINY
from tests.recorded_run import NOON, MakeRun, go_on
from tests.report.conftest import Printed

PROGRAM = "import sys; from nas.cli import main; main(sys.argv[1:])"
# A writer that begins a session, records nothing more, says so, and waits to be killed.
WRITER = """
import sys, time
from pathlib import Path
from nas.store import open_writer, this_session
with open_writer(Path(sys.argv[1]), this_session("nas resume")):
    print("there", flush=True)
    time.sleep(600)
"""


def no_sleep(_: float) -> None:
    pass


@pytest.fixture
def run_folder(recorded_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(recorded_run, tmp_path / "runs" / "example")


def seen_of(folder: Path) -> Watched:
    seen = Watched(time.time)
    with open_run(folder) as run:
        seen.read(run)
    return seen


def values(progress: Progress) -> dict[str, Any]:
    """What is shown of the leaders."""
    return {
        title: held and (held[0].digest, held[0].objectives, held[0].errors)
        for title, held in progress.leaders.items()
    }


class Compared(Listener):
    """After each event, a look from outside sees what the writer's own display has."""

    def __init__(self) -> None:
        self.own = Progress(time.monotonic)
        self.looks = 0

    def on_start(self, event: Any) -> None:
        self.folder = event.folder
        self.own.on_start(event)

    def on_evaluation(self, event: Evaluated) -> None:
        self.own.on_evaluation(event)
        seen = seen_of(self.folder)
        assert (seen.done, seen.total) == (self.own.done, self.own.total)
        assert seen.last[-1].evaluation == event.evaluation
        assert seen.last[-1].proposal.digest == event.proposal.digest
        assert seen.last[-1].proposal.operator == event.proposal.operator
        assert values(seen) == values(self.own)
        self.looks += 1

    def on_generation(self, event: GenerationDone) -> None:
        self.own.on_generation(event)
        seen = seen_of(self.folder)
        assert values(seen) == values(self.own)
        for name in ("counts", "hypervolumes", "generations_done", "done"):
            assert getattr(seen, name) == getattr(self.own, name), name


def test_a_look_sees_what_the_search_shows(make_run: MakeRun, tmp_path: Path) -> None:
    compared = Compared()
    make_run(tmp_path, generations=2, listener=compared)
    assert compared.looks == 24
    assert compared.own.leaders["knee"] is not None


def test_rate_and_workers_are_of_the_last_trainings(recorded_run: Path) -> None:
    seen = seen_of(recorded_run)
    # The clock of the recorded run goes on by a minute with every record.
    assert seen.per_minute == pytest.approx(0.9, abs=0.11)
    with open_run(recorded_run) as run:
        last = run.last_trainings(10)
        assert [one.recorded for one in last] == sorted(one.recorded for one in last)
        assert run.num_trainings() == len(run.evaluations())
        assert max(e.wall_seconds for e in run.evaluations().values()) == 3.5
    assert seen.busy == 0
    assert seen.busy_share == pytest.approx(3.5 * seen.per_minute / 60 / 2, rel=0.05)


def test_workers_are_busy_as_long_as_something_is_asked_for(
    make_run: MakeRun, tmp_path: Path
) -> None:
    found: list[tuple[int, int]] = []

    class Busy(Listener):
        def on_start(self, event: Any) -> None:
            self.folder = event.folder

        def on_evaluation(self, _: Evaluated) -> None:
            seen = seen_of(self.folder)
            found.append((seen.done, seen.busy))

    make_run(tmp_path, generations=1, repeats=2, listener=Busy())
    assert found[:3] == [(1, 2), (2, 2), (3, 2)]
    assert found[-3:] == [(22, 2), (23, 1), (24, 0)]


def test_a_finished_run_is_shown_and_not_changed(nas: Any, at_runs: Path) -> None:
    before = state(at_runs)
    watched, front = nas("watch", "example"), nas("front", "example")
    assert watched.status == 0
    first, _, rest = watched.out.partition("\n")
    assert first.startswith("36 of 36 trainings, generation 3 of 3: ")
    for words in ("(1 failed)", "hypervolume 0.", "best ", "knee ", "cheapest ", "0 of 2 busy"):
        assert words in first
    assert rest == front.out
    assert state(at_runs) == before


def test_a_line_for_each_change_until_it_is_finished(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path, generations=1, is_finished=False)
    writer = open_writer(folder, this_session("nas resume"))
    pipe, seen, read = Printed(), Watched(time.time), 0

    def opened(path: Path) -> Any:
        nonlocal read
        read += 1
        return open_run(path)

    monkeypatch.setattr(following, "open_run", opened)
    steps: list[Callable[[], None]] = [
        lambda: None,
        lambda: None,
        lambda: writer.raise_generations(5),
        lambda: None,
        writer.finish,
    ]

    def sleep(seconds: float) -> None:
        assert seconds >= following.PAUSE_SECONDS
        steps.pop(0)()

    with following.shown(pipe.console, seen) as changed:
        assert follow(folder, seen, changed, sleep=sleep) == "finished"
    writer.close()
    assert steps == []
    # Where nothing had changed, nothing was opened.
    assert read == len(pipe.lines) == 3
    assert [line.split(",")[0] for line in pipe.lines] == [
        "12 of 12 trainings",
        "12 of 60 trainings",
        "12 of 60 trainings",
    ]
    assert pipe.lines[-1] == change_line(seen)


def test_looking_does_not_hold_up_a_writer(make_run: MakeRun, tmp_path: Path) -> None:
    """A reader in the midst of reading, and one after it, keep neither a record nor the log."""
    folder = make_run(tmp_path, generations=1, is_finished=False)
    writer: RunWriter = open_writer(folder, this_session("nas resume"))
    with open_run(folder) as run, run.snapshot():
        seen = Watched(time.time)
        seen.read(run)
        began = time.monotonic()
        writer.raise_generations(7)
        # SQLite would wait for ten seconds before it refuses.
        assert time.monotonic() - began < 5
        assert run.setup.generations == 1
    assert seen_of(folder).setup.generations == 7
    writer.close()
    assert sorted(path.name for path in folder.glob("run.sqlite*")) == ["run.sqlite"]


def test_a_writer_that_was_killed_is_missed(
    nas: Any, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, run_folder], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    assert seen_of(run_folder).started is not None
    living = stamp(run_folder)
    process.kill()
    process.communicate()
    assert stamp(run_folder) != living
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0.01)
    before = state(run_folder)
    result = nas("watch", run_folder)
    assert result.status == 1
    assert f"process {process.pid} on " in result.err
    assert "it was killed, or its machine went down" in result.err
    assert f"`nas resume {run_folder}` goes on" in result.err
    after = state(run_folder)
    after.pop("run.sqlite-shm", None), before.pop("run.sqlite-shm", None)  # SQLite's own notes
    assert after == before


def test_a_run_that_was_stopped_says_when(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(tmp_path, generations=1, is_finished=False)
    assert follow(folder, Watched(time.time), lambda: None, sleep=no_sleep) == "stopped"
    with open_run(folder) as run:
        assert f"it was stopped at {NOON.astimezone():%Y-%m-%d} " in why_stopped(run)


def test_a_run_that_is_just_being_begun_is_looked_at_twice(
    make_run: MakeRun, tmp_path: Path
) -> None:
    folder = make_run(tmp_path, generations=1, is_finished=False)
    assert (
        follow(folder, Watched(time.time), lambda: None, sleep=lambda _: go_on(folder))
        == "finished"
    )


def test_ctrl_c_ends_it_as_it_ends_everything(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(tmp_path, generations=1, is_finished=False)
    with open_writer(folder, this_session("nas resume")):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "watch", folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        assert process.stdout.readline().startswith("12 of 12 trainings")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in told


def test_the_web_page_is_served_at_the_address_that_is_printed(run_folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "watch", run_folder, "--web"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert "<title>example · nas report</title>" in answer.read().decode()
    process.send_signal(signal.SIGINT)
    out, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in told


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_panel_fits_and_says_more(recorded_run: Path, width: int) -> None:
    terminal = Printed(width)
    seen = seen_of(recorded_run)
    terminal.console.print(seen)
    assert max(map(len, terminal.lines)) <= width
    for word in ("generations", "best", "knee", "cheapest", "workers", "expected end"):
        assert any(line.startswith(word) for line in terminal.lines)


def test_the_expected_end_is_a_time_of_the_day(make_run: MakeRun, tmp_path: Path) -> None:
    class Half(Listener):
        def on_start(self, event: Any) -> None:
            self.folder = event.folder

        def on_generation(self, event: GenerationDone) -> None:
            if not event.generation.number:
                seen = Watched(lambda: NOON.timestamp() + 600)
                with open_run(self.folder) as run:
                    seen.read(run)
                self.end, self.left = dict(seen.rows())["expected end"], seen.seconds_left

    half = Half()
    make_run(tmp_path, generations=2, listener=half)
    assert half.left is not None
    end = time.localtime(NOON.timestamp() + 600 + half.left)
    assert half.end == time.strftime("%H:%M", end)


def test_event_files_are_written_and_said(nas: Any, at_runs: Path, tmp_path: Path) -> None:
    result = nas("tensorboard", "example", tmp_path / "tb")
    assert result.status == 0
    assert f"{tmp_path}/tb/example: " in result.err
    assert any((tmp_path / "tb" / "example").glob("events.out.tfevents.*"))
    assert ": 0 event files written" in nas("tensorboard", "example", tmp_path / "tb").err


def test_a_search_that_is_watched_killed_and_resumed(
    nas: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real processes, from the first training to the last event."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    common = ("--backend", "local", "--tensorboard", "events")
    search = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "search", "--space", "quickstart", "--task", "tiny.yaml",
         "--gens", "3", "--pop", "3", "--run", "a", *common],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert search.stdout is not None
    next(line for line in search.stdout if line.startswith("generation 1 of 3"))
    search.send_signal(signal.SIGSTOP)  # it must not end before somebody looks
    watch = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "watch", "a"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watch.stdout is not None
    assert " of 9 trainings, generation " in watch.stdout.readline()
    search.kill()
    search.communicate()
    _, told = watch.communicate(timeout=60)
    assert watch.returncode == 1
    assert f"process {search.pid} on " in told
    assert nas("resume", "a", *common).status == 0
    assert nas("watch", "a").status == 0
    live = {path.relative_to("events"): path.read_bytes() for path in files("events")}
    steps = sorted(path.name for path in Path("events/a").glob("events.out.*"))
    assert steps == [f"events.out.tfevents.{number:06}.nas" for number in range(3)]
    assert nas("tensorboard", "a", "again").status == 0
    assert {path.relative_to("again"): path.read_bytes() for path in files("again")} == live


def files(folder: str) -> list[Path]:
    return [path for path in Path(folder).rglob("*") if path.is_file()]


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files of a folder, and when they were written."""
    files = [path for path in folder.iterdir() if path.is_file()]
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
