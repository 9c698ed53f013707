"""The benchmark ``driver``: a short search of simulated trainings."""

from __future__ import annotations

from argparse import Namespace

import pytest

from benchmarks.driver import driver


@pytest.mark.slow
def test_driver_reports_time_memory_and_busy_share(capsys: pytest.CaptureFixture[str]) -> None:
    options = Namespace(trainings=48, population=12, lag=24, seed=0)
    cpu, memory, busy = driver(options)
    assert (cpu.unit, memory.unit, busy.unit) == ("ms each", "MiB", "busy")
    assert min(busy.value, cpu.value) > 0
    assert capsys.readouterr().out.count(" trainings ") >= 20
