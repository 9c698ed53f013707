"""Whether two tasks rank alike: against scipy, and where nothing can be said."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from nas.report.ranks import rank_correlations

RNG = np.random.default_rng(0)
NAMES = [f"m{i}" for i in range(14)]


def by_name(values):
    return dict(zip(NAMES, np.asarray(values, float).tolist(), strict=False))


def test_correlations_equal_scipy_and_lie_in_their_intervals():
    truth = RNG.normal(size=14)
    noisy, other = truth + 0.3 * RNG.normal(size=14), RNG.normal(size=14)
    noisy[3] = noisy[4]  # a tie
    scores = {"short": by_name(noisy), "long": by_name(truth), "other": by_name(other)}
    found = {tuple(one["tasks"]): one for one in rank_correlations(scores)}
    assert list(found) == [("short", "long"), ("short", "other"), ("long", "other")]
    for tasks, one in found.items():
        wanted = spearmanr(*([*scores[t].values()] for t in tasks)).statistic
        assert one["rho"] == pytest.approx(wanted)
        assert one["low"] < one["rho"] < one["high"]
        assert one["mechanisms"] == 14
    assert found["short", "long"]["low"] > 0.5 > found["short", "other"]["rho"]


def test_fewer_than_ten_common_mechanisms_have_no_correlation():
    scores = {"a": by_name(range(14)), "b": by_name(range(9))}
    assert list(rank_correlations(scores)) == []


def test_equal_scores_have_correlation_zero():
    scores = {"a": by_name(range(14)), "b": by_name([1.0] * 14)}
    (found,) = rank_correlations(scores)
    assert (found["rho"], found["low"], found["high"]) == (0, 0, 0)
