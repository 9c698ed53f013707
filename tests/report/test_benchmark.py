"""Verdicts over several tasks: paired, with intervals, and corrected for their number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr, ttest_rel

from nas.common.objectives import Metric
from nas.common.rates import CHOOSING_SEEDS
from nas.evaluation.trial import Budget, Evaluation
from nas.report.benchmark import benchmark_table, make_benchmark, rank_correlations
from nas.report.trials import TrainingRow

ACCURACY = Metric("accuracy", "fraction", "max", 0.1, 1.0)
BITS = Metric("bits_per_byte", "bit", "min", 5.0, 0.0)
RNG = np.random.default_rng(0)
BASE = RNG.normal(0.5, 0.05, 5)
NAMES = [f"m{i}" for i in range(14)]


def trainings(values, metric):
    """Of each source, by seed; None failed."""
    found = []
    for source, own in values.items():
        for repeat, value in enumerate(own):
            status = ("ok", None, {metric.name: value}) if value else ("failed", "diverged", {})
            error = None if value else "the loss is no number"
            rest = ((), repeat, Budget(1, 2, "float32"), 1.0, 2.0, 0, "here")
            evaluation = Evaluation(*status, *rest, error=error)
            found.append(TrainingRow(source, source, repeat, evaluation, {"macs": 3.0}, metric))
    return found


def compare(sources, trainings, absent, seeds):
    return make_benchmark({name: name for name in sources}, trainings, absent, seeds)


@pytest.fixture
def result():
    by_task = {
        "images": trainings(
            {"mha": BASE, "up": BASE + 0.05 + RNG.normal(0, 1e-3, 5), "like": BASE + 1e-6},
            ACCURACY,
        ),
        "bytes": trainings(
            {
                "mha": 5 * BASE,
                "up": 5 * BASE + 0.1 + RNG.normal(0, 1e-3, 5),
                "like": [2.5, None, 2.4, None, 2.6],
            },
            BITS,
        ),
        "recall": trainings({"mha": BASE}, ACCURACY),
    }
    why = "sees later tokens"
    absent = {"images": {}, "bytes": {}, "recall": {"up": why, "like": why}}
    return compare(["mha", "up", "like"], by_task, absent, 5)


def test_differences_are_paired_and_verdicts_follow_the_direction(result):
    _, up, like = result.mechanisms
    images, bytes_ = up.tasks["images"], up.tasks["bytes"]
    assert (images.verdict, bytes_.verdict) == ("better", "worse")
    found = ttest_rel(images.values, BASE)
    assert images.difference["p"] == pytest.approx(found.pvalue)
    low, high = found.confidence_interval(0.95)
    assert (images.difference["low"], images.difference["high"]) == pytest.approx((low, high))
    assert images.difference["low"] < 0.05 < images.difference["high"]
    failing = like.tasks["bytes"]  # what is left of it is chosen by luck
    assert (failing.difference, failing.verdict, failing.failed) == (None, None, 2)
    assert failing.values == (2.5, None, 2.4, None, 2.6)
    assert failing.reasons == {"diverged: the loss is no number": 2}
    assert up.absent == {"recall": "sees later tokens"}
    assert "recall" not in up.tasks
    assert result.mechanisms[0].tasks["images"].verdict is None


def test_table_lists_failures_and_absent_mechanisms(result, pipe):
    benchmark_table(pipe.console, result)
    text = pipe.text
    assert "images: accuracy %, higher is better; bytes: bits per byte, lower is better" in text
    assert "up under recall: sees later tokens" in text
    assert "like under bytes: 2 of 5 failed, diverged: the loss is no number" in text
    row = next(line for line in text.splitlines() if line.startswith("up"))
    assert (row.count("+"), row.count("-")) == (1, 1)


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


def test_mechanisms_are_compared_at_their_best_rates(pipe):
    rng, seeds = np.random.default_rng(1), 5
    means = {0.01: {"mha": 2.5, "up": 2.9, "like": 2.5}, 0.03: {"mha": 2.9, "up": 2.0, "like": 2.5}}
    rows = []
    for rate, by_name in means.items():
        noise = rng.normal(0, 0.01, (3, seeds + CHOOSING_SEEDS))
        values = {
            name: [*(mean + row)] for (name, mean), row in zip(by_name.items(), noise, strict=True)
        }
        if rate == 0.03:
            values["like"][-1] = None
        rows += [replace(row, learning_rate=rate) for row in trainings(values, BITS)]
    result = compare(["mha", "up", "like"], {"bytes": rows}, {"bytes": {}}, seeds)
    mha, up, like = (row.tasks["bytes"] for row in result.mechanisms)
    assert (mha.learning_rate, up.learning_rate, like.learning_rate) == (0.01, 0.03, 0.01)
    assert (up.verdict, like.verdict) == ("better", "undecided")
    assert up.mean == pytest.approx(2.0, abs=0.03)
    assert len(up.values) == seeds
    assert up.mean == up.rates["0.03"]
    assert list(like.rates) == ["0.01"]  # a training failed at the other rate
    num = 3 * 2 * (seeds + CHOOSING_SEEDS)
    assert result.tuning == {"trainings": num - 3 * seeds, "core_seconds": 2 * (num - 3 * seeds)}
    benchmark_table(pipe.console, result)
    assert "each mechanism at its best rate" in pipe.text
    assert "Trainings whose values are not shown: 27, 54 core s." in pipe.text
    assert "like under bytes: 1 of 14 failed" in pipe.text
