"""The benchmark ``driver``: a short search of simulated trainings."""

from __future__ import annotations

from argparse import Namespace

import pytest

from benchmarks.driver import driver


@pytest.mark.slow
def test_driver_reports_time_memory_and_busy_share() -> None:
    rows = list(driver(Namespace(trainings=48, population=12, lag=24, seed=0)))
    assert len(rows) >= 20
    assert all(min(row["ms each"], row["MiB"], row["workers busy, %"]) > 0 for row in rows)
