"""The limit of a metric (``SearchSpace.region``), relative to trainings of two mechanisms.

A limit is a share of the way from the score of ``uniform``, the mean of all tokens, to that of
standard attention. A search with such a limit trains both before it creates its run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from nas.common.differences import mean_and_error
from nas.common.errors import RunError, SpaceError
from nas.common.objectives import Metric, of_metric
from nas.evaluation.study import study
from nas.evaluation.trial import Evaluator, Training
from nas.genome.mechanisms import mechanism
from nas.tasks import built_in_tasks
from nas.tasks.base import Data, Task

TRAININGS: Final = 3  # trainings of each reference mechanism
NAMES: Final = ("mha", "uniform")
LEAST: Final = 3.0  # least difference of the scores of both mechanisms, in standard errors


def train_references(
    task: Task,
    data: Data,
    evaluator: Evaluator,
    *,
    seed: int,
    on_reference: Callable[[int, int], None],
) -> list[Training]:
    """Train standard attention and ``uniform`` under a task without gates.

    Args:
        on_reference: called with the number of finished trainings and the total number.

    Raises:
        RunError: a training failed.
    """
    trainings: list[Training] = []
    for training in study(
        [(name, mechanism(name).genome) for name in NAMES],
        task,
        data,
        evaluator,
        repeats=TRAININGS,
        seed=seed,
        purpose="reference",
    ):
        if not training.evaluation.is_ok:
            raise RunError(
                f"task {task.name!r}: {training.name}, to which others are compared, could not be "
                f"trained: {training.evaluation.error}"
            )
        trainings.append(training)
        on_reference(len(trainings), len(NAMES) * TRAININGS)
    return trainings


def limit_of(metric: Metric, share: float, trainings: Iterable[Training]) -> float:
    """Return the value of a metric at a share of the way from ``uniform`` to standard attention.

    Raises:
        RunError: standard attention is not clearly better than ``uniform``.
        SpaceError: the limit is better than the best possible value.
    """
    ordered = sorted(trainings, key=lambda training: training.repeat)
    (mha, error_mha), (uniform, error_uniform) = (
        mean_and_error([t.evaluation.metrics[metric.name] for t in ordered if t.name == name])
        for name in NAMES
    )
    error = ((error_mha or 0.0) ** 2 + (error_uniform or 0.0) ** 2) ** 0.5
    objective = of_metric(metric)
    if not objective.as_cost(uniform - mha) > LEAST * error:
        task = ordered[0].task_name
        copy = f"a copy from `nas tasks {task}`" if task in built_in_tasks() else "the task's file"
        raise RunError(
            f"task {task!r}: {metric.name} is {mha:.4g} for standard attention and {uniform:.4g} "
            "for `uniform`, the mean of all tokens; expected standard attention to be better by "
            f"more than {LEAST:g} standard errors of the difference ({error:.2g}). The limit of "
            f"{metric.name} is relative to this difference. Train longer (more epochs, in {copy}), "
            "or search with `--region none`."
        )
    limit = mha + (1.0 - share) * (uniform - mha)
    if objective.as_cost(limit) < objective.as_cost(metric.ideal):
        raise SpaceError(
            f"region: the limit {share:g} of {metric.name} is {limit:.4g}, beyond the best "
            f"possible value {metric.ideal:g}; expected a smaller share."
        )
    return limit
