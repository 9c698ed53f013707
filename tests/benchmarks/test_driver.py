"""The driver's benchmark does what a search does: every candidate is recorded."""

from __future__ import annotations

import pytest

from tests.benchmarks import driver


def test_time_a_candidate_has_two_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "POPULATION", 6)
    monkeypatch.setattr(driver, "GENERATIONS", 2)
    spent = driver.measure_search("quickstart", seed=0)
    assert 0 < spent.proposing < spent.total
