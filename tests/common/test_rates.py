"""Choosing learning rates: reported means are unbiased, and claims keep their level."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_rel

from nas.common.differences import LEVEL, difference, paired
from nas.common.rates import CHOOSING_SEEDS, CLOSING, open_rates, tune, tuned_difference

RATES = (0.003, 0.01, 0.03)
SEEDS = 5
DRAWS = 1000
FLAT, PEAKED, SHALLOW = (0.0, 0.0, 0.0), (-9.0, 0.0, -9.0), (-0.7, 0.0, -0.7)
STEEP = (0.0, -2.0, -4.0)


def draw(rng, means, shared):
    """Return values by rate and repeat; the part of the noise that a seed shares is ``shared``."""
    noise = rng.normal(size=(len(RATES), shared.size)) + shared
    return {
        rate: dict(enumerate(mean + row))
        for rate, mean, row in zip(RATES, means, noise, strict=True)
    }


def simulate(first, second, direction="max"):
    """Yield pairs of tuned scores of two mechanisms with true means ``first`` and ``second``."""
    rng, repeats = np.random.default_rng(0), SEEDS + CHOOSING_SEEDS
    sign = 1 if direction == "max" else -1
    for _ in range(DRAWS):
        shared = rng.normal(size=repeats)
        both = {
            name: draw(rng, sign * np.array(means), shared)
            for name, means in (("first", first), ("second", second))
        }
        choosing = {
            name: {
                rate: {i: values[i] for i in range(CHOOSING_SEEDS)} for rate, values in own.items()
            }
            for name, own in both.items()
        }
        left = open_rates(choosing, direction)
        yield tuple(
            tune({rate: own[rate] for rate in left[name]}, direction) for name, own in both.items()
        )


def most(level):
    """Return a bound that a fraction of DRAWS draws with this probability almost never exceeds."""
    return level + 3 * (level * (1 - level) / DRAWS) ** 0.5


@pytest.mark.parametrize(
    ("first", "second", "direction"),
    [
        (FLAT, FLAT, "max"),
        (SHALLOW, SHALLOW, "min"),
        (PEAKED, PEAKED, "max"),
        (FLAT, PEAKED, "max"),
        (STEEP, (-3.0, -1.0, 0.0), "min"),
        (SHALLOW, (0.0, -0.7, -0.7), "max"),
    ],
)
def test_equal_best_quality_is_claimed_different_at_most_at_the_level(first, second, direction):
    found = [tuned_difference(*pair, direction) for pair in simulate(first, second, direction)]
    assert np.mean([each["p"] < LEVEL for each in found]) < most(LEVEL)
    assert np.mean([not each["low"] <= 0 <= each["high"] for each in found]) < most(LEVEL)


def test_t_test_between_the_chosen_rates_has_too_many_claims():
    pairs = simulate(SHALLOW, SHALLOW)
    found = [difference(paired(a.values, b.values)) for a, b in pairs]
    assert np.mean([each["p"] < LEVEL for each in found]) > most(LEVEL)


@pytest.mark.parametrize(("gain", "side"), [(4.0, "low"), (-4.0, "high")])
def test_large_difference_is_found_on_the_correct_side(gain, side):
    means = tuple(mean + gain for mean in SHALLOW)
    found = [tuned_difference(*pair, "max") for pair in simulate(means, SHALLOW)]
    assert np.mean([each["p"] < LEVEL and each[side] * gain > 0 for each in found]) > 0.9
    covered = np.mean([each["low"] <= gain <= each["high"] for each in found])
    assert covered > 1 - most(LEVEL)


def test_reported_mean_is_unbiased_and_the_best_of_several_means_is_not():
    scores = [first for first, _ in simulate(FLAT, FLAT)]
    error = (2 / SEEDS / DRAWS) ** 0.5  # the variance of a value is 2
    assert abs(np.mean([[*s.values.values()] for s in scores])) < 4 * error
    best = [max(np.mean([*v.values()]) for v in s.by_rate.values()) for s in scores]
    assert np.mean(best) > 10 * error


def test_clearly_worse_rates_and_those_with_a_failure_are_closed():
    num_open = [len(s.by_rate) for pair in simulate(PEAKED, PEAKED) for s in pair]
    assert np.mean(num_open) < 1.1
    best = [0.01 in s.by_rate for pair in simulate(SHALLOW, SHALLOW) for s in pair]
    assert np.mean(best) > 1 - 2 * CLOSING
    failed = {0.1: {0: 1.0, 1: None}, 0.2: {0: 1.0, 1: 1.1}, 0.3: {0: 1.1, 1: 1.0}}
    never = {rate: {0: None, 1: None} for rate in failed}
    assert open_rates({"a": failed, "b": never}, "max") == {"a": [0.2, 0.3], "b": []}
    assert open_rates({"a": {0.1: {0: 1.0, 1: 1.1}}}, "min") == {"a": [0.1]}
    assert open_rates({"b": never}, "max") == {"b": []}


def test_rates_are_chosen_by_the_first_seeds_and_failures_exclude_a_rate():
    scores = {
        0.1: {0: 1.0, 1: 3.0, 2: 0.0},
        0.2: {0: 2.0, 1: 1.0, 2: 9.0},
        0.3: {0: 8.0, 1: 8.0, 2: None},
    }
    assert (tune(scores, "max").rate, tune(scores, "min").rate) == (0.1, 0.2)
    assert tune(scores, "max").by_rate == {0.1: {2: 0.0}, 0.2: {2: 9.0}, 0.3: {2: None}}
    assert tune({0.3: scores[0.3]}, "max") is None
    assert tuned_difference(tune(scores, "max"), None, "max") is None


def test_no_claim_is_made_against_a_reference_that_lost_a_training_at_an_open_rate():
    seeds = range(CHOOSING_SEEDS + 5)
    base = {rate: {i: mean + 0.01 * i for i in seeds} for rate, mean in ((0.1, 10.0), (0.2, 5.0))}
    own = tune({0.1: {i: 7.0 + 0.02 * i for i in seeds}}, "max")
    assert tuned_difference(own, tune(base, "max"), "max")["high"] < 0
    base[0.1][4] = None  # at the rate of the best mean
    lost = tuned_difference(own, tune(base, "max"), "max")
    assert (lost["low"], lost["high"], lost["p"]) == (None, None, 1.0)


def test_difference_at_one_rate_is_student_t_test():
    first, second = next(simulate(SHALLOW, FLAT))
    first, second = (type(each)(each.rate, {each.rate: each.values}) for each in (first, second))
    found = tuned_difference(first, second, "min")
    expected = ttest_rel([*first.values.values()], [*second.values.values()])
    assert found["p"] == pytest.approx(expected.pvalue)
    assert (found["low"], found["high"]) == pytest.approx(expected.confidence_interval(0.95))
