"""E-values of paired gains, their intervals, and the rate of false claims."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi, halfnorm

from nas.common.sequential import SCALE, anytime_interval, decide, evidence, needed


def test_evidence_is_the_ratio_of_likelihoods_under_a_half_normal_prior() -> None:
    gains = np.random.default_rng(1).normal(0.5, 1.0, 7)
    n, s = len(gains), gains.sum() / np.sqrt((gains**2).sum())

    def ratio(effect: float) -> float:
        # The unknown scale is integrated out: sqrt(sum of squares) / scale has a chi distribution.
        weight = lambda u: chi.pdf(u, n) * np.exp(effect * u * s - n * effect**2 / 2)  # noqa: E731
        return quad(weight, 0, 30)[0]

    exact = quad(lambda effect: halfnorm.pdf(effect, scale=SCALE) * ratio(effect), 0, 12)[0]
    assert evidence(gains)[-1] == pytest.approx(exact, rel=1e-6)
    np.testing.assert_allclose(evidence(gains)[:-1], evidence(gains[:-1]))
    np.testing.assert_allclose(evidence(100 * gains), evidence(gains))


def test_gains_of_zero_are_no_evidence() -> None:
    assert evidence([0.0, 0.0]).tolist() == [1.0, 1.0]
    assert decide([0.0, 0.0], "max").side == "undecided"
    assert decide([], "min") == ("undecided", 1.0, 1.0)


def test_decision_follows_the_direction_of_the_metric_and_the_number_of_claims() -> None:
    gains = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0]
    assert decide(gains, "max").side == "better"
    assert decide(gains, "min").side == "worse"
    better, worse = decide(gains, "max"), decide(gains, "min")
    assert (better.better, better.worse) == (worse.worse, worse.better)
    assert needed(50) == 50 * needed(1) == 2000
    assert decide(gains[:4], "max").side == "better"
    assert decide(gains[:4], "max", claims=50).side == "undecided"
    # A claim stands, since the greatest evidence so far counts.
    assert decide([*gains, -5.0], "max").side == "better"


@pytest.mark.parametrize("mean", [0.0, -0.5])
def test_false_claims_are_as_rare_as_promised(mean: float) -> None:
    gains = np.random.default_rng(2).normal(mean, 1.0, (20_000, 60))
    for least in (4.0, 20.0):
        assert (evidence(gains).max(axis=1) >= least).mean() <= 1 / least


def test_interval_holds_the_means_that_the_evidence_does_not_exclude() -> None:
    gains = np.random.default_rng(3).normal(0.5, 1.0, 15)
    bounds = anytime_interval(gains, 0.05)
    assert bounds is not None
    assert bounds[0] < gains.mean() < bounds[1]
    for bound in bounds:
        both = evidence(gains - bound)[-1] + evidence(bound - gains)[-1]
        assert both / 2 == pytest.approx(1 / 0.05)
    assert anytime_interval(gains[:2], 0.05) is None
    assert anytime_interval([1.0] * 9, 0.05) is None


def test_intervals_hold_the_mean_at_all_times() -> None:
    rng, missed = np.random.default_rng(4), 0
    for _ in range(100):
        gains = rng.normal(1.0, 1.0, 30)
        bounds = [anytime_interval(gains[:n], 0.2) for n in range(1, 31)]
        missed += any(b is not None and not b[0] <= 1.0 <= b[1] for b in bounds)
    assert missed / 100 <= 0.2
