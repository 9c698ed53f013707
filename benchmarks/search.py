"""What a whole search costs for each mechanism that it finds, beside the published loop.

``nas search`` runs in a process of its own: attention_v1 under published-proxy, 10 generations of
20, two Ray workers. The processor time of all its processes counts, from the first import on: the
driver, the workers, failed trainings, and Ray's own services. A mechanism counts once, by its
digest at the task's sizes, and only if its training ended well.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import TIMES, Figure, single
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
# graphs that it had trained before. It trained 134 different graphs; without nodes that nothing
# reads, 81 of them are different legal mechanisms. The first 725 core-seconds trained every
# proposal; later, a repeated graph was charged what a training takes on average.
PUBLISHED: Final = {"graphs": 12_588 / 134, "legal mechanisms": 12_588 / 81}


def search(options: argparse.Namespace) -> list[Figure]:
    """Core-seconds a mechanism, utilisation and overhead of one search."""
    with tempfile.TemporaryDirectory() as folder:
        print(f"\n{SPACE}, {TASK}, {GENERATIONS} generations of {POPULATION}, {WORKERS} workers")
        spent = run_and_measure(folder, options.data)
        with open_run(Path(folder) / "benchmark") as run:
            facts = RunView.read(run)
    return _told(facts, spent)


def run_and_measure(folder: str, data: str) -> dict[str, float]:
    """A search into ``folder``; core-seconds by the names of its processes' programs."""
    words = {
        "space": SPACE, "task": TASK, "data": data, "pop": POPULATION, "gens": GENERATIONS,
        "workers": WORKERS, "seed": 0, "runs": folder, "run": "benchmark",
    }  # fmt: skip
    arguments = [text for name, value in words.items() for text in (f"--{name}", str(value))]
    begin = [sys.executable, "-c", "from nas.cli import main; main()"]
    return core_seconds_of([*begin, "search", *arguments])


def core_seconds_of(command: Sequence[str], **given: Any) -> dict[str, float]:
    """Core-seconds of a command, by the names of its processes' programs."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, **given) as process:
        family = Family(process.pid)
        while process.poll() is None:
            family.look()
            time.sleep(POLL_SECONDS)
    assert process.returncode == 0, f"the search ended with {process.returncode}"
    return family.core_seconds()


class Family:
    """Processor time of a process and of all that come from it, whoever adopts them.

    Times are looked up again and again: of each process what it did after the last look is lost,
    one period at most. What a parent is told of its children would leave out those that nobody
    waited for, as Ray's are.
    """

    def __init__(self, pid: int) -> None:
        self._pids = {pid}
        self._found: dict[tuple[int, int], tuple[str, int]] = {}

    def is_alive(self) -> bool:
        """Whether any member was there at the last look."""
        return bool(self._pids)

    def look(self) -> None:
        """Note the times of all members, new ones among them."""
        now = {stat.pid: stat for stat in map(Stat.read, Path("/proc").glob("[0-9]*")) if stat}
        # A child may have a lower number than its parent; look until nobody is new.
        while new := {s.pid for s in now.values() if s.parent in self._pids} - self._pids:
            self._pids |= new
        for stat in now.values():
            if stat.pid in self._pids:
                self._found[stat.pid, stat.started] = stat.name, stat.ticks
        self._pids &= {s.pid for s in now.values() if not s.has_ended}

    def core_seconds(self) -> dict[str, float]:
        """By name of program, the largest first."""
        second = os.sysconf("SC_CLK_TCK")
        totals: dict[str, float] = {}
        for name, ticks in self._found.values():
            totals[name] = totals.get(name, 0.0) + ticks / second
        return dict(sorted(totals.items(), key=lambda item: -item[1]))


class Stat:
    """One line of /proc/PID/stat."""

    def __init__(self, text: str) -> None:
        head, _, tail = text.rpartition(")")
        pid, _, self.name = head.partition(" (")
        fields = tail.split()
        self.pid, self.parent, self.started = int(pid), int(fields[1]), int(fields[19])
        self.has_ended = fields[0] == "Z"
        self.ticks = int(fields[11]) + int(fields[12])  # in user mode and in the kernel

    @classmethod
    def read(cls, folder: Path) -> Stat | None:
        """Of a process that may be gone by now."""
        try:
            return cls((folder / "stat").read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return None


def _told(facts: RunView, spent: dict[str, float]) -> list[Figure]:
    total = sum(spent.values())
    count = len(facts.candidates)
    assert facts.busy is not None
    assert facts.overhead is not None
    values = {
        "core-seconds a mechanism": (total / count, "core-seconds"),
        **{
            f"published {kind} / ours": (seconds * count / total, TIMES)
            for kind, seconds in PUBLISHED.items()
        },
        "workers busy": (100 * facts.busy, "%"),
        "search itself": (100 * facts.overhead, "%"),
    }
    print(f"  {count} mechanisms trained, {sum(facts.failures.values())} failed")
    for name, seconds in spent.items():
        print(f"  {name:26}{seconds:9.1f} core-seconds")
    for name, (value, unit) in values.items():
        print(f"  {name:26}{value:9.2f} {unit}")
    return [single(name, value, unit) for name, (value, unit) in values.items()]
