"""Kill the commands of a run's life cycle (search, resume, confirm, export) at random times.

Each command is a fork of this process, which has already imported the modules, so that a kill does
not cost three core-seconds of imports. A command is killed by SIGKILL at a random time after its
start or after its next step; then the command that continues it is run.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.chaos import outcome
from nas.api.doctor import check_run
from nas.cli import main
from nas.evaluation.trial import Purpose
from nas.store import open_run
from nas.store.files import STALE_SECONDS, sweep
from nas.store.lock import is_held

if TYPE_CHECKING:
    from collections.abc import Callable

# Modules that the commands use; imported once, before the forks.
IMPORTED: Final = (
    *("nas.api.runs", "nas.api.exporting", "nas.report.confirmation", "nas.report.front"),
    *("nas.report.display", "nas.searching.surrogate", "nas.tasks.sequences.synthetic"),
)
RUN: Final = Path("runs/life")
SEARCH: Final = "search --space quickstart --task tiny.yaml --gens 2 --pop 4 --run life"
TASK: Final = """
name: tiny
kind: recall
epochs: 1
width: 16
heads: 2
train_examples: 480
batch_size: 16
validation_examples: 128
curve_examples: 8
pairs: 2
num_keys: 4
num_values: 4
learning_rate: 0.02
"""
BACKENDS: Final = ("local", "ray")
OUTPUT: Final = "output.txt"  # file of a command's standard output and error
MARK: Final = "NAS_LIFE"  # in the environment of all processes of a command
# Time for the processes of a killed command to end: Ray's agents retry for a minute.
MOST_SECONDS: Final = 75.0
PAUSE: Final = 0.02  # seconds between two polls, which take processor time from the command
# Counts that must be zero. Temporary files may remain if `nas doctor RUN` names them or the next
# write of the file removes them.
MUST_BE_ZERO: Final = (
    *("lost", "trained again", "processes left", "locks left", "results that differ"),
    *("files not removed", "faults"),
)


@dataclass(frozen=True)
class Phase:
    """A phase of a life cycle; ``count`` returns the number of finished steps in a folder."""

    name: str
    command: str
    count: Callable[[Path], int]


def _num_records(folder: Path) -> int:
    """Return the number of records.

    The database is read only if its files have changed.
    """
    paths = [folder / RUN / f"run.sqlite{end}" for end in ("", "-wal")]
    return _num_records_at(folder, *(_stamp(path) for path in paths))


@lru_cache(1)
def _num_records_at(folder: Path, *_: tuple[int, int]) -> int:
    return len(records(folder / RUN))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    except FileNotFoundError:
        return 0, 0


def _export_time(folder: Path) -> int:
    return _stamp(folder / "out")[0]  # changes when a file is created or renamed there


RESUMING: Final = Phase("resuming", "resume life --gens 3", _num_records)
EXPORTING: Final = Phase("exporting", "export life/best -o out/best.py --weights", _export_time)
PHASES: Final = (
    Phase("recording", SEARCH, _num_records),
    RESUMING,
    Phase("confirming", "confirm life --members 1 --seeds 2", _num_records),
    EXPORTING,
)


@dataclass(frozen=True)
class Pace:
    """Seconds until the first step of a phase, and per further step."""

    first: float
    step: float


def records(run: Path) -> dict[tuple[Any, ...], Any]:
    """Return all proposals and trainings in the record, by purpose, task, mechanism and repeat."""
    if not (run / "run.sqlite").exists():
        return {}
    with open_run(run) as opened, opened.snapshot():
        purposes: tuple[Purpose, ...] = ("search", "confirm")
        by_key: dict[tuple[Any, ...], Any] = {
            (purpose, t.stage, t.task, t.key, t.repeat): t
            for purpose in purposes
            for t in opened.trainings(purpose)
        }
        return by_key | {("proposal", i): p for i, p in enumerate(opened.proposals())}


def ending(folder: Path) -> dict[str, Any]:
    """Return the results of a life cycle that must not depend on workers or times."""
    with open_run(folder / RUN) as run:
        confirmed = [
            (c.stage, c.key, c.repeat, c.evaluation.metrics) for c in run.trainings("confirm")
        ]
        estimates = run.estimates()
    exported = {path.name: path.read_bytes() for path in (folder / "out").glob("best.*")}
    weights = {path.name: path.read_bytes() for path in (folder / RUN / "weights").glob("*.*")}
    others = {"estimates": estimates, "confirmations": confirmed, "exported files": exported}
    return {**outcome(folder / RUN), **others, "weights": weights}


def files(folder: Path) -> set[Path]:
    """Return relative paths of all files and folders in a folder."""
    return {path.relative_to(folder) for path in folder.rglob("*")}


class Life:
    """One life cycle of a run, in a separate folder.

    Attributes:
        counts: number of kills and of violations, by name.
        slowest: largest time until all processes of a killed command had ended, in seconds.
    """

    def __init__(self, folder: Path, backend: str) -> None:
        self.folder, self._backend = folder, backend
        for name in ("tmp", "out"):
            (folder / name).mkdir(parents=True)
        (folder / "tiny.yaml").write_text(TASK)
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0
        self._records: dict[tuple[Any, ...], Any] = {}

    def run_undisturbed(self) -> dict[str, Pace]:
        """Run all phases without a kill; return their paces."""
        paces = {}
        for command, same in groupby(PHASES, lambda phase: phase.command):
            child, start = self._fork(command), time.monotonic()
            done = {phase: [(phase.count(self.folder), 0.0)] for phase in same}
            while not _has_ended(child):
                for phase, steps in done.items():
                    if (count := phase.count(self.folder)) > steps[-1][0]:
                        steps.append((count, time.monotonic() - start))
                time.sleep(PAUSE)
            self._wait(child)
            for phase, (_, (_, first), *rest) in done.items():
                last = rest[-1][1] if rest else first
                paces[phase.name] = Pace(first, (last - first) / max(1, len(rest)))
        return paces

    def has_run(self) -> bool:
        """Return whether the run exists."""
        return (self.folder / RUN / "run.sqlite").exists()

    def finish(self, phase: Phase) -> None:
        """Run a phase to its end."""
        self._wait(self._fork(self._command(phase)))

    def kill(self, phase: Phase, delay: float, *, is_start: bool) -> bool:
        """Kill the phase's command some seconds after its start, or after its next step.

        Returns:
            False if the command ended before the kill.
        """
        (self.folder / OUTPUT).unlink(missing_ok=True)
        before, due = phase.count(self.folder), None
        child = self._fork(self._command(phase))
        while not _has_ended(child):
            now = time.monotonic()
            if due is None and (is_start or phase.count(self.folder) > before):
                due = now + delay
            if due is not None and now >= due:
                os.kill(child, signal.SIGKILL)
                break
            time.sleep(PAUSE)
        if not self._wait(child):
            return False
        self._inspect(child)
        return True

    def compare(self, reference: Life) -> None:
        """Count differences of results and files from an undisturbed life cycle."""
        results, expected = ending(self.folder), ending(reference.folder)
        self.counts["results that differ"] += sum(
            results[name] != expected[name] for name in expected
        )
        extra = files(self.folder) - files(reference.folder)
        long_ago = time.time() - 2 * STALE_SECONDS
        for path in extra:
            os.utime(self.folder / path, (long_ago, long_ago))
        self.counts["temporary files"] += len(extra)
        faults = check_run(self.folder / RUN)
        self.counts["faults"] += sum(" was left unfinished " not in fault for fault in faults)
        for command in ("resume life", PHASES[-1].command):
            self._wait(self._fork(command))
        sweep(self.folder / "runs")  # as the next search does
        self.counts["files not removed"] += len(files(self.folder) - files(reference.folder))
        self.counts["faults"] += len(check_run(self.folder / RUN))

    def _command(self, phase: Phase) -> str:
        """Return the command that continues a phase."""
        is_begun = phase.command == SEARCH and self.has_run()
        return "resume life" if is_begun else phase.command

    def _inspect(self, child: int) -> None:
        """Count processes and locks left by a kill, and lost or repeated trainings."""
        start = time.monotonic()
        while (alive := _alive(child)) and time.monotonic() - start < MOST_SECONDS:
            time.sleep(0.1)
        self.slowest = max(self.slowest, time.monotonic() - start)
        self.counts["processes left"] += len(alive)
        if self.has_run():
            self.counts["locks left"] += is_held(self.folder / RUN)
        current = records(self.folder / RUN)
        self.counts["lost"] += sum(name not in current for name in self._records)
        self.counts["trained again"] += sum(
            current.get(name, before) != before for name, before in self._records.items()
        )
        self._records = current

    def _fork(self, command: str) -> int:
        words = command.split()
        trains = [] if words[0] == "export" else ["--backend", self._backend, "--workers", "1"]
        child = os.fork()
        if child:
            return child
        status: Any = 1
        try:
            os.setsid()
            os.environ[MARK] = str(os.getpid())
            os.chdir(self.folder)
            tempfile.tempdir = str(self.folder / "tmp")
            output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.argv = ["nas", *words, *trains]
            main(sys.argv[1:])
        except SystemExit as error:
            status = error.code or 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _wait(self, child: int) -> bool:
        """Wait for a command; return whether it was killed. Any other exit must have status 0."""
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return True
        assert status == 0, (self.folder / OUTPUT).read_text()
        return False


def _alive(session: int) -> list[int]:
    """Return process IDs of a command's session and of all its descendants."""
    mark, pids = f"{MARK}={session}\0".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended, or not readable
            number = int(entry.name)
            is_ours = os.getsid(number) == session or mark in (entry / "environ").read_bytes()
            pids += [number] if is_ours else []
    return pids


def _has_ended(child: int) -> bool:
    """Return whether a child has ended; its status can still be read."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
