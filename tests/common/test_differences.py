"""Student's test, Holm's correction, and the error rate of repeated verdicts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from nas.common.differences import (
    LEVEL,
    difference,
    findings,
    holm,
    interval,
    p_above,
    p_below,
)

LOOKS = (5, 10, 20)
MARGIN = 0.8


def test_p_values_and_intervals_equal_scipys():
    gains = list(np.random.default_rng(1).normal(0.3, 1.0, 7))
    less = ttest_1samp(gains, 0.1, alternative="less")
    greater = ttest_1samp(gains, -0.2, alternative="greater")
    both = ttest_1samp(gains, 0.0)
    assert p_below(gains, 0.1) == pytest.approx(less.pvalue)
    assert p_above(gains, -0.2) == pytest.approx(greater.pvalue)
    assert interval(gains, 0.01) == pytest.approx(tuple(both.confidence_interval(0.99)))
    assert difference(gains)["p"] == pytest.approx(both.pvalue)
    assert difference(gains[:1]) is None


def test_holm_corrects_for_the_hypotheses_that_can_be_true_together():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, 0.02, 0.03, 0.04], most_true=2) == pytest.approx([0.02, 0.04, 0.06, 0.06])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_verdicts_depend_on_direction_margin_and_number_of_looks():
    rng = np.random.default_rng(2)
    rows = [list(rng.normal(mean, 0.1, 10)) for mean in (-1.0, 0.0, 1.0)]

    def verdicts(*options):
        return [finding.verdict for finding in findings(rows, *options)]

    assert verdicts((10,), 0.5, "max") == ["worse", "same", "better"]
    assert verdicts((10,), 0.5, "min") == ["better", "same", "worse"]
    assert verdicts((10,), 2.0, "max") == ["same"] * 3
    assert verdicts((20,), 0.5, "max") == ["unresolved"] * 3  # the look is yet to come
    once, twice = findings(rows, (10,), 0.5, "max"), findings(rows, (10, 20), 0.5, "max")
    assert twice[0].p_holm["worse"] == pytest.approx(2 * once[0].p_holm["worse"])
    assert twice[0].high - twice[0].low > once[0].high - once[0].low
    back = once[0].reversed()
    assert (back.verdict, back.low, back.mean) == ("better", -once[0].high, -once[0].mean)


def test_no_pairs_and_no_spread_give_no_verdict():
    none, flat = findings([[], [0.1] * 9], (3, 9), 0.5, "max")
    assert none is None
    assert (flat.verdict, flat.mean) == ("unresolved", pytest.approx(0.1))


def test_wrong_verdicts_are_rare_however_often_one_looks():
    """Truths at which errors are likeliest; resolved differences get no further pairs."""
    rng, truths = np.random.default_rng(3), np.array([0.0, 0.0, MARGIN, -MARGIN, 0.0, MARGIN])
    wrong_at = [{"better", "worse"} if truth == 0 else {"same"} for truth in truths]
    times, wrong, naive, covered = 150, 0, 0, 0
    for _ in range(times):
        full = rng.normal(truths[:, None], 1.0, (len(truths), LOOKS[-1]))
        rows = [list(row[: LOOKS[0]]) for row in full]
        for look in LOOKS:
            results = findings(rows, LOOKS, MARGIN, "max")
            rows = [
                list(whole[:look]) if result.verdict == "unresolved" else row
                for whole, row, result in zip(full, rows, results, strict=True)
            ]
        results = findings(rows, LOOKS, MARGIN, "max")
        wrong += any(r.verdict in bad for r, bad in zip(results, wrong_at, strict=True))
        covered += sum(r.low <= t <= r.high for r, t in zip(results, truths, strict=True))
        naive += any(abs(ttest_1samp(full[0][:n], 0.0).statistic) > 2.262 for n in LOOKS[1:])
    assert wrong / times <= LEVEL
    assert covered / times / len(truths) >= 1 - LEVEL
    assert naive / times > LEVEL  # a single row without correction
