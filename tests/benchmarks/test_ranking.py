"""Kendall's tau between tables with known rankings."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from benchmarks import ranking
from benchmarks.tabular.table import Table, load_table
from nas.evaluation.trial import Evaluation
from nas.training import Report
from tests.evaluation.conftest import make_evaluation


def trained(accuracy: float) -> Evaluation:
    metrics = {"accuracy": accuracy, "log_loss": accuracy}
    return make_evaluation(metrics=metrics, reports=(Report(1, 3 - accuracy, metrics, 1.0),))


def test_tau_of_perfect_reversed_and_unrelated_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    real, true = load_table("attention-bench"), np.random.default_rng(0).permutation(40) / 100

    def made(name: str) -> Table:
        mechanisms = dict(islice(real.mechanisms.items(), len(true)))
        seeds = 3 if name.endswith("-long") else 1
        rows = [(trained(value + (seeds == 1) * 0.3),) * seeds for value in true.tolist()]
        trainings = dict(zip(mechanisms, rows, strict=True))
        return replace(real, name=name, mechanisms=mechanisms, trainings=trainings)

    monkeypatch.setattr(ranking, "load_table", made)
    monkeypatch.setattr(ranking, "DRAWS", 50)
    rows = {row["score of one training"]: row for row in ranking.ranking(Namespace(table="short"))}
    taus = {name: row["tau"] for name, row in rows.items()}
    assert taus["accuracy"].value == rows["accuracy"]["tau of the better half"].value == 1.0
    # Less is better of a loss: here the log-loss rises with accuracy, the training loss falls.
    assert taus["log_loss"].value == -1.0
    assert taus["train_loss"].value == taus["another long training"].value == 1.0
    assert abs(taus["macs"].value) < 0.4
    assert taus["macs"].low < taus["macs"].value < taus["macs"].high
