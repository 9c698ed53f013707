"""Beliefs and utilisation as the benchmarks measure them, on a few small searches."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest

from benchmarks import beliefs, utilisation
from benchmarks.peers.problem import DEFAULT
from nas.searching.tabular.table import load_table


def test_beliefs_of_small_searches_are_judged(monkeypatch):
    monkeypatch.setattr(beliefs, "BUDGET", 72)  # by then a few repeats say how noisy scores are
    found = {one.name: one for one in beliefs.beliefs(Namespace(table=DEFAULT, seeds=2))}
    estimate, score, held, *deciles = found.values()
    assert estimate.value < score.value  # the luckiest score is further above its truth
    assert 50 < held.value <= 100
    assert all(0 <= one.value <= 1 for one in deciles)


def test_calibration_says_how_often_each_decile_came_true():
    chances = np.repeat([0.05, 0.95], 200)
    outcomes = np.arange(400) % 20 < np.repeat([1, 18], 200)
    keys = np.array([f"{i % 40}" for i in range(400)])
    low, high = beliefs._calibration(chances, outcomes, keys)
    assert (low.value, high.value) == pytest.approx((0.05, 0.9))


def test_a_lag_keeps_workers_busier_than_generations():
    table = load_table(DEFAULT)
    waiting = utilisation.busy(table, 16, 12 * 16, None)
    lagging = utilisation.busy(table, 16, 12 * 16, 4 * 16)
    assert waiting < lagging <= 1
