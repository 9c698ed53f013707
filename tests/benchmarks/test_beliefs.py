"""The benchmark ``beliefs`` on small searches."""

from __future__ import annotations

from argparse import Namespace

import pytest

from benchmarks import beliefs
from benchmarks.peers.problem import DEFAULT


@pytest.mark.slow
def test_beliefs_report_bias_coverage_and_calibration(monkeypatch):
    monkeypatch.setattr(beliefs, "BUDGET", 72)  # enough for a few repeats, which estimate the noise
    figures = {figure.name: figure for figure in beliefs.beliefs(Namespace(table=DEFAULT, seeds=2))}
    estimate, score, coverage, *shares = figures.values()
    assert estimate.value < score.value
    assert 50 < coverage.value <= 100
    assert all(0 <= share.value <= 1 for share in shares)
