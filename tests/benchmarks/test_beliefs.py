"""The benchmark ``beliefs`` on small searches."""

from __future__ import annotations

from argparse import Namespace

import pytest

from benchmarks import beliefs
from benchmarks.peers.problem import DEFAULT


@pytest.mark.slow
def test_beliefs_report_bias_coverage_and_calibration(monkeypatch):
    monkeypatch.setattr(beliefs, "BUDGET", 72)  # enough for a few repeats, which estimate the noise
    first, *deciles = beliefs.beliefs(Namespace(table=DEFAULT, seeds=2))
    assert (
        first["best estimate better than truth"].value < first["best score better than truth"].value
    )
    assert 50 < first["truths inside 80 % intervals, %"].value <= 100
    assert all(0 <= row["share of members"].value <= 1 for row in deciles)
