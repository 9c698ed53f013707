"""A small task, its data, trials of standard attention, and an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nas.evaluation.trial import Budget, Evaluation, Report, Trial
from nas.genome.mechanisms import mechanism
from nas.tasks import Data, Task, load_task

MakeTrials = Callable[..., list[Trial]]


def make_evaluation(**changes: Any) -> Evaluation:
    """An ok evaluation; ``changes`` replace its fields."""
    fields: dict[str, Any] = {
        "status": "ok",
        "reason": None,
        "metrics": {"accuracy": 0.5},
        "reports": (Report(1, 2.25, {"accuracy": 0.125}, 0.5), Report(2, 1.75, {}, 1.25)),
        "seed": 7,
        "budget": Budget(2, 64, "float32"),
        "wall_seconds": 1.5,
        "core_seconds": 1.25,
        "peak_memory_bytes": 2**33,
        "worker": "host:12",
        "hardware": "a CPU",
        "execution": "cuda graph",
    }
    return Evaluation(**{**fields, **changes})


def results(evaluation: Evaluation) -> tuple[Any, ...]:
    """Everything but times, which must not depend on where and when a trial ran."""
    assert evaluation.is_ok, evaluation.error
    reports = [(report.train_loss, report.metrics) for report in evaluation.reports]
    return evaluation.metrics, reports, evaluation.weights


@pytest.fixture(scope="package")
def task() -> Task:
    sizes = {"epochs": 1, "train_images": 64, "validation_images": 32, "width": 32}
    return load_task("vit-cifar10", data="digits", overrides=sizes)


@pytest.fixture(scope="package")
def data(task: Task) -> Data:
    return task.load()


@pytest.fixture(scope="session")
def trials_named() -> MakeTrials:
    """Trials with these keys, the n-th with seed n."""

    def make(*keys: str) -> list[Trial]:
        genome = mechanism("mha").genome
        return [Trial(key, genome, seed) for seed, key in enumerate(keys)]

    return make
