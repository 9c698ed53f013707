"""E-values of paired gains, their intervals, and the rate of false claims."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad

from nas.common.sequential import (
    CLAIMS,
    STAKES,
    Claim,
    Decision,
    decide,
    evidence,
    needed,
    typical_interval,
)

GAINS = [1.0, 1.1, 0.9, -0.2, 1.05, 0.0, 0.95, 1.0, 0.8, 1.2, 0.7, 0.6, 0.9, 1.0]


def test_evidence_of_a_typical_gain_is_the_mean_ratio_of_likelihoods() -> None:
    wins, losses = 12, 1
    exact = quad(lambda p: 2 * (2 * p) ** wins * (2 - 2 * p) ** losses, 0.5, 1)[0]
    assert evidence(GAINS, "typical", 1.0)[-1] == pytest.approx(exact, rel=1e-9)


def test_evidence_of_the_mean_is_the_mean_wealth_of_bets_on_capped_gains() -> None:
    capped = np.clip(np.divide(GAINS, 0.95), -1, 1)
    wealth = [np.prod([1 + stake * each for each in capped]) for stake in STAKES]
    assert evidence(GAINS, "mean", 0.95)[-1] == pytest.approx(np.mean(wealth))
    for large in (-5.0, 5.0):
        capped = evidence([large / 50], "mean", 0.1)
        assert evidence([large], "mean", 0.1) == pytest.approx(capped)


@pytest.mark.parametrize("claim", CLAIMS)
def test_decision_needs_more_evidence_in_a_record_and_stands(claim: Claim) -> None:
    gains = [0.0, *GAINS] if claim == "typical" else 3 * GAINS
    losses, none = [-gain for gain in gains], Decision("undecided", 1.0, 1.0)
    assert decide([], claim, 2.0) == decide([0.0, 0.0], claim, 2.0) == none
    assert decide(gains, claim, 2.0).verdict == "better"
    assert decide(losses, claim, 2.0).verdict == "worse"
    assert needed(50) == 50 * needed(1) == 2000
    assert decide(gains[:15], claim, 2.0, places=50).verdict == "undecided"
    # The greatest evidence so far counts.
    assert decide([*gains, *[-0.5] * 5], claim, 2.0).verdict == "better"


def draw(shape: str, rng: np.random.Generator) -> np.ndarray:
    """Return gains whose median and capped mean are at most 0, (20,000, 60)."""
    size = (20_000, 60)
    if shape == "normal":
        return rng.normal(0, 1.0, size)
    if shape == "heavy":
        return rng.standard_t(1, size)
    if shape == "two values":
        return rng.choice([-1.0, 1.0], size)
    # Often a little better, and at one seed of 20 a loss of the cap: the mean is 0.
    return np.where(rng.random(size) < 0.05, -19.0, 1.0 + rng.normal(0, 0.5, size))


@pytest.mark.parametrize("shape", ["normal", "heavy", "two values", "skewed"])
@pytest.mark.parametrize("claim", CLAIMS)
def test_false_claims_are_as_rare_as_promised(shape: str, claim: Claim) -> None:
    gains = draw(shape, np.random.default_rng(2))
    if shape == "skewed":  # for which the claim "typical" is true
        is_typical = (evidence(gains, "typical", 19.0).max(axis=1) >= 20.0).mean() > 0.9
        assert is_typical
        claim = "mean"
    caps = (19.0,) if shape == "skewed" else (0.1, 19.0)
    for least, cap in product((4.0, 20.0), caps):
        assert (evidence(gains, claim, cap).max(axis=1) >= least).mean() <= 1 / least


def test_interval_holds_the_medians_that_the_evidence_does_not_exclude() -> None:
    gains = np.random.default_rng(3).normal(0.5, 1.0, 15)
    bounds = typical_interval(list(gains), 0.05)
    assert bounds is not None
    for bound, outwards in zip(bounds, (-1e-9, 1e-9), strict=True):
        for shift, is_excluded in ((outwards, True), (-outwards, False)):
            rest = gains - bound - shift
            both = evidence(rest, "typical", 1.0)[-1] + evidence(-rest, "typical", 1.0)[-1]
            assert (both / 2 >= 1 / 0.05) == is_excluded
    assert typical_interval(list(gains[:7]), 0.05) is None


def test_intervals_hold_the_median_at_all_times() -> None:
    rng, missed = np.random.default_rng(4), 0
    for _ in range(200):
        gains = rng.exponential(1.0, 30)
        bounds = [typical_interval(list(gains[:n]), 0.2) for n in range(1, 31)]
        missed += any(b is not None and not b[0] <= np.log(2) <= b[1] for b in bounds)
    assert missed / 200 <= 0.2


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_is_made_once_the_gains_have_recurred_often_enough(claim: Claim) -> None:
    needs = decide(GAINS[:5], claim, 2.0, places=50).decided_after
    assert needs is not None
    recurring = list(np.resize(GAINS[:5], needs))
    assert decide(recurring, claim, 2.0, places=50).verdict == "better"
    assert decide(recurring[:-1], claim, 2.0, places=50).verdict == "undecided"
    assert decide([1.0, -1.0], claim, 2.0).decided_after is None
