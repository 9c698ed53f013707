"""A life of a run, as a person types it: searched, gone on with, confirmed, exported; and killed.

Each command is a process forked from this one, which has imported what it needs, so that a kill
does not cost three core-seconds of imports. It is killed with signal 9, a random time after its
start or after something more of it was done; then the command is typed that goes on.
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
from nas.cli import main
from nas.searching.checking import check_run
from nas.store import open_run
from nas.store.files import LEFT_SECONDS, STAGING, sweep
from nas.store.lock import is_held

if TYPE_CHECKING:
    from collections.abc import Callable

# What commands import; without it each of them would, anew.
IMPORTED: Final = (
    *("nas.api.runs", "nas.api.exporting", "nas.report.confirmation", "nas.report.front"),
    *("nas.cli.display", "nas.searching.surrogate", "nas.tasks.sequences.synthetic"),
)
RUN: Final = Path("runs/life")
SEARCH: Final = "search --space quickstart --task tiny.yaml --gens 2 --pop 4 --run life"
TASK: Final = """
name: tiny
kind: suite
members:
  recall:
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
counted_at: recall
"""
BACKENDS: Final = ("local", "ray")
MARK: Final = "NAS_LIFE"  # in the environment of all that a command starts
# For what a killed command started to end: Ray's agents try for a minute to say that it is gone.
MOST_SECONDS: Final = 75.0
PAUSE: Final = 0.02  # between two looks; they take time from what is looked at
# Temporary files may be left: those that `nas check` names or that go when the file is made again.
MAY_NOT_BE: Final = (
    *("lost", "trained again", "processes left", "locks left", "results that differ"),
    *("files not removed", "faults"),
)


@dataclass(frozen=True)
class Phase:
    """A part of a life: the command, and how much of it is done, as seen from outside."""

    name: str
    command: str
    count: Callable[[Path], int]


def _said(folder: Path) -> int:
    """References that the command has told of."""
    said = folder / "said"
    return said.read_text().count("to compare with") if said.exists() else 0


def _recorded(folder: Path) -> int:
    """Read anew only where something was written: the reader must not starve what it watches."""
    written = [folder / RUN / f"run.sqlite{end}" for end in ("", "-wal")]
    return _num_recorded(folder, *(_stamp(path) for path in written))


@lru_cache(1)
def _num_recorded(folder: Path, *_: tuple[int, int]) -> int:
    return len(records(folder / RUN))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        return (found := path.stat()).st_mtime_ns, found.st_size
    except FileNotFoundError:
        return 0, 0


def _exported(folder: Path) -> int:
    return _stamp(folder / "out")[0]  # of the last file that was made or renamed there


REFERENCES: Final = Phase("references", SEARCH, _said)
RESUMING: Final = Phase("resuming", "resume life --gens 3", _recorded)
EXPORTING: Final = Phase("exporting", "export life/best -o out/best.py --weights", _exported)
PHASES: Final = (
    REFERENCES,
    Phase("recording", SEARCH, _recorded),
    RESUMING,
    Phase("confirming", "confirm life --members 1 --seeds 2", _recorded),
    EXPORTING,
)


@dataclass(frozen=True)
class Pace:
    """Seconds until the first step of a phase, and of each further one."""

    first: float
    step: float


def records(run: Path) -> dict[tuple[Any, ...], Any]:
    """Every training and proposal in the record, with the seconds that it took."""
    if not (run / "run.sqlite").exists():
        return {}
    with open_run(run) as opened, opened.snapshot():
        trainings = (*opened.trainings(), *opened.trainings("confirm"))
        found: dict[tuple[Any, ...], Any] = {
            (t.stage, t.task, t.key, t.repeat): t for t in trainings
        }
        return found | {("proposal", i): p for i, p in enumerate(opened.proposals())}


def ending(folder: Path) -> dict[str, Any]:
    """What a life came to, as far as it may not depend on who trained what and when."""
    with open_run(folder / RUN) as run:
        confirmed = [
            (c.stage, c.key, c.repeat, c.evaluation.metrics) for c in run.trainings("confirm")
        ]
        estimates = run.estimates()
    exported = {path.name: path.read_bytes() for path in (folder / "out").glob("best.*")}
    weights = {path.name: path.read_bytes() for path in (folder / RUN / "weights").glob("*.*")}
    found = {"estimates": estimates, "confirmations": confirmed, "exported files": exported}
    return {**outcome(folder / RUN), **found, "weights": weights}


def files(folder: Path) -> set[Path]:
    """All files and folders below, by their path in it."""
    return {path.relative_to(folder) for path in folder.rglob("*")}


class Life:
    """One life in a folder of its own.

    Args:
        backend: who trains.

    Attributes:
        found: what is to be counted, by name.
        slowest: seconds until all that a killed command had started was gone.
    """

    def __init__(self, folder: Path, backend: str) -> None:
        self.folder, self._backend = folder, backend
        (folder / "tmp").mkdir(parents=True)
        (folder / "tiny.yaml").write_text(TASK)
        self.found: Counter[str] = Counter()
        self.slowest = 0.0
        self._seen: dict[tuple[Any, ...], Any] = {}

    def undisturbed(self) -> dict[str, Pace]:
        """Live without a kill."""
        paces = {}
        for command, same in groupby(PHASES, lambda phase: phase.command):
            child, begun = self._forked(command), time.monotonic()
            done = {phase: [(phase.count(self.folder), 0.0)] for phase in same}
            while not _has_ended(child):
                for phase, steps in done.items():
                    if (count := phase.count(self.folder)) > steps[-1][0]:
                        steps.append((count, time.monotonic() - begun))
                time.sleep(PAUSE)
            self._ended(child)
            for phase, (_, (_, first), *rest) in done.items():
                last = rest[-1][1] if rest else first
                paces[phase.name] = Pace(first, (last - first) / max(1, len(rest)))
        return paces

    def has_run(self) -> bool:
        """Whether the run is there: its references were measured."""
        return (self.folder / RUN / "run.sqlite").exists()

    def finish(self, phase: Phase) -> None:
        """Bring a phase to its end."""
        self._ended(self._forked(self._typed(phase)))

    def is_killed(self, phase: Phase, delay: float, *, is_start: bool) -> bool:
        """Kill the phase's command some seconds after its start, or after its next step.

        False where it had ended before.
        """
        (self.folder / "said").unlink(missing_ok=True)
        before, due = phase.count(self.folder), None
        child = self._forked(self._typed(phase))
        while not _has_ended(child):
            now = time.monotonic()
            if due is None and (is_start or phase.count(self.folder) > before):
                due = now + delay
            if due is not None and now >= due:
                os.kill(child, signal.SIGKILL)
                break
            time.sleep(PAUSE)
        if not self._ended(child):
            return False
        self._inspect(child)
        return True

    def judge(self, calm: Life) -> None:
        """Count what differs from the calm life, and what is left beside it."""
        mine, theirs = ending(self.folder), ending(calm.folder)
        self.found["results that differ"] += sum(mine[name] != theirs[name] for name in theirs)
        extra = files(self.folder) - files(calm.folder)
        long_ago = time.time() - 2 * LEFT_SECONDS
        for path in extra:
            os.utime(self.folder / path, (long_ago, long_ago))
        self.found["temporary files"] += len(extra)
        faults = check_run(self.folder / RUN)
        self.found["faults"] += sum(" was left unfinished " not in fault for fault in faults)
        for command in ("resume life", PHASES[-1].command):
            self._ended(self._forked(command))
        sweep(self.folder / "runs", STAGING)  # as the next search does
        self.found["files not removed"] += len(files(self.folder) - files(calm.folder))
        self.found["faults"] += len(check_run(self.folder / RUN))

    def _typed(self, phase: Phase) -> str:
        """What a person types to go on."""
        is_begun = phase.command == SEARCH and self.has_run()
        return "resume life" if is_begun else phase.command

    def _inspect(self, child: int) -> None:
        """Count what a kill has left running, and what the record has lost."""
        begun = time.monotonic()
        while (alive := _alive(child)) and time.monotonic() - begun < MOST_SECONDS:
            time.sleep(0.1)
        self.slowest = max(self.slowest, time.monotonic() - begun)
        self.found["processes left"] += len(alive)
        if self.has_run():
            self.found["locks left"] += is_held(self.folder / RUN)
        now = records(self.folder / RUN)
        self.found["lost"] += sum(name not in now for name in self._seen)
        self.found["trained again"] += sum(now.get(n, one) != one for n, one in self._seen.items())
        self._seen = now

    def _forked(self, command: str) -> int:
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
            said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(said, 1)
            os.dup2(said, 2)
            sys.argv = ["nas", *words, *trains]
            main(sys.argv[1:])
        except SystemExit as ended:
            status = ended.code or 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _ended(self, child: int) -> bool:
        """Wait for a command: whether it was killed. Any other end must be a good one."""
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return True
        assert status == 0, (self.folder / "said").read_text()
        return False


def _alive(session: int) -> list[int]:
    """Processes of a command's session, and those that it or they have started."""
    mark, found = f"{MARK}={session}\0".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone by now, or somebody else's
            number = int(entry.name)
            is_ours = os.getsid(number) == session or mark in (entry / "environ").read_bytes()
            found += [number] if is_ours else []
    return found


def _has_ended(child: int) -> bool:
    """Whether it has; it is not waited for yet."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
