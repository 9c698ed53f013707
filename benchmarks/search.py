"""Measure core-seconds per mechanism of a whole search, and compare with the published search.

``nas search`` runs in a separate process: attention_v1 under published-proxy, 10 generations of 20,
two Ray workers. The figure includes the processor time of all its processes from the first import:
driver, workers, failed trainings and Ray's services. A mechanism counts once, by its digest, and
only if its training succeeded.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.rows import Row
from nas.report.run_view import RunView
from nas.store import open_run

SPACE: Final = "attention_v1"
TASK: Final = "published-proxy"
POPULATION: Final = 20
GENERATIONS: Final = 10
WORKERS: Final = 2
POLL_SECONDS: Final = 1.0

# The published search, rezighamza/Evolving-Attention at commit b5b18f9 with its own settings
# (population 50, 50 generations), measured on 2026-11-21 on a Xeon with AMX, one torch thread:
# 12,588 core-seconds for 2,550 proposals, of which 1,065 were invalid, 112 crashed and 1,239 were
# graphs that it had trained before. It trained 134 different graphs; without unread nodes, 81 of
# them are different legal mechanisms. In the first 725 core-seconds each proposal was trained;
# later, a repeated graph was charged the mean time of a training.
PUBLISHED: Final = {"graphs": 12_588 / 134, "legal mechanisms": 12_588 / 81}


def search(options: argparse.Namespace) -> Iterator[Row]:
    """Yield core-seconds per mechanism and busy share of workers of one search."""
    with tempfile.TemporaryDirectory() as folder:
        total = run_and_measure(folder, options.data)
        with open_run(Path(folder) / "benchmark") as run:
            view = RunView.read(run)
    count = len(view.candidates)
    busy = sum(training.evaluation.wall_seconds for training in view.trainings)
    available = view.wall_seconds * view.sessions[0].workers
    yield {
        "mechanisms": count,
        "failed": sum(view.failures.values()),
        "core-seconds each": total / count,
        **{f"published {kind} / ours": s * count / total for kind, s in PUBLISHED.items()},
        "workers busy, %": 100 * busy / available,
    }


def run_and_measure(folder: str, data: str) -> float:
    """Run a search in ``folder``; return the core-seconds of all its processes."""
    options = {
        "space": SPACE, "task": TASK, "data": data, "pop": POPULATION, "gens": GENERATIONS,
        "workers": WORKERS, "seed": 0, "runs": folder, "run": "benchmark",
    }  # fmt: skip
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, "-c", "from nas.cli import main; main()", "search", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        family = Family(process.pid)
        while process.poll() is None:
            family.poll()
            time.sleep(POLL_SECONDS)
    assert process.returncode == 0, f"the search ended with {process.returncode}"
    return family.core_seconds()


class Family:
    """Processor time of a process and all its descendants, also after their parents have ended.

    Times are read in ``poll``, so the time of a process after the last call is lost. The times that
    the system reports to a parent would omit children that it does not wait for, such as Ray's.
    """

    def __init__(self, pid: int) -> None:
        self._pids = {pid}
        self._ticks: dict[tuple[int, int], int] = {}

    def is_alive(self) -> bool:
        """Return whether any process existed at the last poll."""
        return bool(self._pids)

    def poll(self) -> None:
        """Store the current times of all processes, including new ones."""
        stats = {stat.pid: stat for stat in map(Stat.read, Path("/proc").glob("[0-9]*")) if stat}
        # A child may have a lower ID than its parent, so repeat until there are no new processes.
        while new := {s.pid for s in stats.values() if s.parent in self._pids} - self._pids:
            self._pids |= new
        for stat in stats.values():
            if stat.pid in self._pids:
                self._ticks[stat.pid, stat.started] = stat.ticks
        self._pids &= {s.pid for s in stats.values() if not s.has_ended}

    def core_seconds(self) -> float:
        """Return the core-seconds of all processes."""
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")


class Stat:
    """The state of a process, from the text of /proc/PID/stat."""

    def __init__(self, text: str) -> None:
        head, _, tail = text.rpartition(")")
        pid = head.partition(" (")[0]
        fields = tail.split()
        self.pid, self.parent, self.started = int(pid), int(fields[1]), int(fields[19])
        self.has_ended = fields[0] == "Z"
        self.ticks = int(fields[11]) + int(fields[12])  # in user mode and in the kernel

    @classmethod
    def read(cls, folder: Path) -> Stat | None:
        """Return the state from a process folder; None if the process has ended."""
        try:
            return cls((folder / "stat").read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return None
