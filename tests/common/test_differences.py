"""Student's test, Holm's correction, and the error rate of repeated verdicts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from nas.common.differences import LEVEL, difference, findings, holm, interval, p_above, p_below

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

    assert verdicts(0.5, "max") == ["worse", "same", "better"]
    assert verdicts(0.5, "min") == ["better", "same", "worse"]
    assert verdicts(2.0, "max") == ["same"] * 3


def test_no_pairs_and_no_spread_give_no_verdict():
    none, flat = findings([[], [0.1] * 9], 0.5, "max")
    assert none is None
    assert (flat.verdict, flat.mean) == ("undecided", pytest.approx(0.1))


def test_wrong_verdicts_are_rare():
    """Truths at which errors are likeliest."""
    rng, truths = np.random.default_rng(3), np.array([0.0, 0.0, MARGIN, -MARGIN, 0.0, MARGIN])
    wrong_at = [{"better", "worse"} if truth == 0 else {"same"} for truth in truths]
    times, wrong, covered = 150, 0, 0
    for _ in range(times):
        rows = [list(row) for row in rng.normal(truths[:, None], 1.0, (len(truths), 10))]
        results = findings(rows, MARGIN, "max")
        wrong += any(r.verdict in bad for r, bad in zip(results, wrong_at, strict=True))
        covered += sum(r.low <= t <= r.high for r, t in zip(results, truths, strict=True))
    assert wrong / times <= LEVEL
    assert covered / times / len(truths) >= 1 - 1.5 * LEVEL
