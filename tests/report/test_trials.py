"""The table of `nas evaluate`: means with their errors, and differences between pairs."""

from __future__ import annotations

import json

from nas.common.objectives import Metric
from nas.evaluation.trial import Budget, Evaluation
from nas.report.trials import EvaluateResult, TrainingRow, trial_table

from .conftest import Printed

RECALL = Metric("recall", "fraction", "max", 0.1, 1.0)
LOSS = Metric("log_loss", "nat", "min", 2.3, 0.0)
COSTS = {"macs": 1e6, "params": 100.0, "kv_cache_bytes_per_token": 64.0}


def training(name: str, repeat: int, value: float | None, metric: Metric = RECALL) -> TrainingRow:
    evaluation = Evaluation(
        status="ok" if value is not None else "failed",
        reason=None if value is not None else "diverged",
        metrics={} if value is None else {metric.name: value},
        reports=(),
        seed=repeat,
        budget=Budget(1, 64, "float32"),
        wall_seconds=2.0,
        core_seconds=1.5,
        peak_memory_bytes=1,
        worker="w",
        error=None if value is not None else "Traceback ...\nit diverged.\x1b[2J",
    )
    return TrainingRow(name, "0" * 16, repeat, evaluation, COSTS, metric)


TRAININGS = [
    training("mha", 0, 0.50),
    training("mha", 1, 0.54),
    training("sqa", 0, 0.49),
    training("sqa", 1, 0.53),
    training("qana", 0, 0.52),
    training("qana", 1, None),
]


def result(*trainings: TrainingRow) -> EvaluateResult:
    return EvaluateResult("comparison", False, trainings)


def test_differences_are_those_of_pairs(pipe: Printed) -> None:
    """sqa is one point below in each pair: an error of zero, though both spread by two."""
    trial_table(pipe.console, result(*TRAININGS))
    assert "recall %" in pipe.lines[0]
    assert "over mha" in pipe.lines[0]
    rows = {line.split()[0]: line for line in pipe.lines if line}
    assert "51.0 ± 2.0" in rows["sqa"]
    assert "-1.0 ± 0.0" in rows["sqa"]
    assert rows["qana"].split()[1:3] == ["52.0", "-"]  # a training failed: nothing is compared
    assert rows["qana"].split()[-3:] == ["1.5", "1", "1"]  # core s, trained, failed
    assert " - " in rows["mha"]
    assert "qana, seed 1: diverged: it diverged.\\u001b[2J" in pipe.text
    assert "points of recall" in pipe.text


def test_a_metric_other_than_a_fraction_keeps_its_unit(pipe: Printed) -> None:
    trial_table(pipe.console, result(training("mha", 0, 1.25, LOSS), training("sqa", 0, 1.5, LOSS)))
    rows = {line.split()[0]: line.split() for line in pipe.lines if line}
    assert rows["sqa"][1:3] == ["1.50", "+0.250"]


def test_answer_has_every_training() -> None:
    answer = json.loads(json.dumps(result(*TRAININGS).to_dict(), allow_nan=False))
    assert answer["task"] == "comparison"
    assert [e["status"] for e in answer["evaluations"]].count("failed") == 1
    first = answer["evaluations"][0]
    assert first["objectives"] == {"recall": 0.5, **COSTS}
    assert {"id", "seed", "reason", "core_seconds", "wall_seconds", "peak_memory_bytes"} <= {*first}
