"""Benchmarks of searches count the time of all processes, orphans included."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from benchmarks import search

# A process starts another one and exits; the orphan computes for one second.
ORPHAN: Final = """
import subprocess, sys, time
work = "import time\\nwhile time.process_time() < 1: pass"
subprocess.Popen([sys.executable, "-c", work])
time.sleep(0.5)
"""


def test_time_of_orphans_is_counted() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHAN]) as process:
        family = search.Family(process.pid)
        while family.is_alive():
            family.poll()
        assert process.wait() == 0
    assert sum(family.core_seconds().values()) > 0.9


def test_program_name_may_contain_spaces_and_brackets() -> None:
    numbers = " ".join(map(str, range(3, 30)))
    stat = search.Stat(f"17 (a (b) c) S {numbers}")
    assert (stat.pid, stat.name, stat.parent) == (17, "a (b) c", 3)
    assert (stat.ticks, stat.started) == (13 + 14, 21)
