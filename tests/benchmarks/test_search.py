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
    assert family.core_seconds() > 0.9
