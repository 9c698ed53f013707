"""Rank correlations between tables with known results."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest
from scipy.stats import kendalltau  # type: ignore[import-untyped]

from nas.evaluation.trial import Budget, Evaluation
from nas.searching.tabular import ranking
from nas.searching.tabular.ranking import agreements
from nas.searching.tabular.table import Table, load_table
from nas.training import Report

bench = cache(load_table)


def made(name: str, values: np.ndarray) -> Table:
    """A table whose trainings have these accuracies, (mechanisms, seeds)."""
    real = bench("attention-bench")
    mechanisms = dict(islice(real.mechanisms.items(), len(values)))
    rows = (tuple(trained(float(v)) for v in row) for row in values)
    trainings = dict(zip(mechanisms, rows, strict=True))
    return replace(real, name=name, mechanisms=mechanisms, trainings=trainings)


def trained(accuracy: float) -> Evaluation:
    reports = (Report(1, 3 - accuracy, {"accuracy": accuracy, "log_loss": accuracy}, 1.0),)
    given = (reports, 0, Budget(1, 1, "float32"), 1.0, 1.0, 0, "x")
    return Evaluation("ok", None, reports[0].metrics, *given)


def test_agreement_of_perfect_and_reversed_scores() -> None:
    rng = np.random.default_rng(0)
    true = rng.permutation(40) / 100
    long = made("long", np.stack([true, true, true], axis=1))
    num, found = agreements(made("short", true[:, None] + 0.3), long, "accuracy")
    scores = {one.score: one for one in found}
    assert num == 40
    assert scores["accuracy"].tau.value == scores["accuracy"].upper.value == 1.0
    assert scores["accuracy"].regret == 0
    # Less is better of a loss: here the log-loss rises with accuracy, the training loss falls.
    assert scores["log_loss"].tau.value == -1.0
    assert scores["log_loss"].regret == pytest.approx(0.35)  # the best of its five is the 36th
    assert scores["train_loss"].tau.value == 1.0
    assert scores["another long training"].tau.value == 1.0
    assert abs(scores["macs"].tau.value) < 0.4
    assert scores["macs"].tau.low < scores["macs"].tau.value < scores["macs"].tau.high


def test_tau_equals_scipy_with_ties_and_repeated_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ranking, "NUM_DRAWS", 20)
    rng = np.random.default_rng(2)
    score, truth = rng.integers(6, size=(2, 30)).astype(float)
    rng = np.random.default_rng(0)
    drawn = [np.arange(30), *(rng.integers(30, size=30) for _ in range(20))]
    wanted = [kendalltau(score[one], truth[one]).statistic for one in drawn]
    np.testing.assert_allclose(ranking._taus(score, truth), wanted, rtol=0, atol=1e-12)
