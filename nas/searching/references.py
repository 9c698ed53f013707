"""Scores of two reference mechanisms: standard attention and ``uniform``, the mean of all tokens.

A search under a suite, or with a limit of a metric, trains them before the first proposal. A suite,
that is, a task that consists of several tasks, measures regrets relative to both. The limit
of a metric (``SearchSpace.region``) is a share of the way from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeGuard

from nas.common.differences import mean_and_error
from nas.common.errors import RunError
from nas.common.objectives import Metric, of_metric
from nas.evaluation.study import study
from nas.evaluation.trial import Evaluator, Training
from nas.genome.mechanisms import mechanism
from nas.tasks import built_in_tasks
from nas.tasks.base import Data, Task
from nas.tasks.suite import Reference, Suite

if TYPE_CHECKING:
    from nas.store import RunWriter

TRAININGS: Final = 3  # trainings of each reference mechanism
NAMES: Final = ("mha", "uniform")
LEAST: Final = 3.0  # least difference of the scores of both mechanisms, in standard errors


def is_lacking_references(task: Task) -> TypeGuard[Suite]:
    """Return whether a task is a suite whose reference mechanisms are not trained yet."""
    return isinstance(task, Suite) and not task.references


def provisional(suite: Suite, data: Data) -> Suite:
    """Return a suite with assumed reference scores, so that its metrics are already defined.

    The score of standard attention is taken as the best possible value of the metric, and the score
    of the mean of all tokens as the score of an untrained model.
    """
    metrics = {name: task.metrics(data.parts[name])[0] for name, task in suite.regret_tasks.items()}
    return suite.with_references(
        {
            name: Reference(metric=metric.name, mha=metric.ideal, uniform=metric.chance)
            for name, metric in metrics.items()
        }
    )


def train_references(
    writer: RunWriter,
    task: Task,
    data: Data,
    evaluator: Evaluator,
    on_reference: Callable[[int, int], None],
    *,
    is_target: bool = False,
) -> list[Training]:
    """Train standard attention and ``uniform`` under a task, and return the trainings.

    Each training is recorded. Trainings that are recorded already are not repeated.

    Args:
        task: a task that needs no references itself, such as ``Suite.without_gates()``.
        data: data of the task.
        evaluator: an evaluator for the task.
        on_reference: called with the number of finished trainings and the total number.
        is_target: whether ``task`` is the evaluator's target task.

    Raises:
        RunError: a training failed.
    """
    recorded = writer.run.trainings("reference")
    done = {(training.key, training.repeat) for training in recorded}
    trainings = []
    for training in study(
        [(name, mechanism(name).genome) for name in NAMES],
        task,
        data,
        evaluator,
        repeats=TRAININGS,
        seed=writer.run.setup.config.seed,
        purpose="reference",
        known=recorded,
        is_target=is_target,
    ):
        trainings.append(training)
        if (training.key, training.repeat) not in done or not training.evaluation.is_ok:
            writer.record_training(training)
        if not training.evaluation.is_ok:
            raise RunError(
                f"task {task.name!r}: {training.name}, to which others are compared, could not be "
                f"trained: {training.evaluation.error}"
            )
        on_reference(len(trainings), len(NAMES) * TRAININGS)
    return trainings


def with_references(suite: Suite, data: Data, trainings: Iterable[Training]) -> Suite:
    """Return a suite with the scores of standard attention and ``uniform`` in each of its tasks.

    Args:
        trainings: trainings of both mechanisms under ``suite.without_gates()``.

    Raises:
        RunError: standard attention is not clearly better than the mean of all tokens in a task.
    """
    references = {}
    for name, task in suite.regret_tasks.items():
        metric = task.metrics(data.parts[name])[0]
        found = reference_of(suite, replace(metric, name=f"{name}.{metric.name}"), trainings)
        references[name] = found.model_copy(update={"metric": metric.name})
    return suite.with_references(references)


def reference_of(task: Task, metric: Metric, trainings: Iterable[Training]) -> Reference:
    """Return the mean scores of standard attention and ``uniform`` in a metric.

    Args:
        trainings: trainings of both mechanisms under the task.

    Raises:
        RunError: standard attention is not clearly better than the mean of all tokens.
    """
    scores: dict[str, list[float]] = {mechanism: [] for mechanism in NAMES}
    for training in sorted(trainings, key=lambda training: training.repeat):
        scores[str(training.name)].append(training.evaluation.metrics[metric.name])
    (mha, error_mha), (uniform, error_uniform) = (mean_and_error(scores[n]) for n in NAMES)
    error = ((error_mha or 0.0) ** 2 + (error_uniform or 0.0) ** 2) ** 0.5
    if not of_metric(metric).as_cost(uniform - mha) > LEAST * error:
        raise RunError(
            f"task {task.name!r}: {metric.name} is {mha:.4g} for standard attention and "
            f"{uniform:.4g} for `uniform`, the mean of all tokens; expected standard attention to "
            f"be better by more than {LEAST:g} standard errors of the difference ({error:.2g}). "
            "Scores are measured relative to this difference. " + _way_out(task)
        )
    return Reference(metric=metric.name, mha=mha, uniform=uniform)


def _way_out(task: Task) -> str:
    is_built_in = task.name in built_in_tasks()
    copy = f"a copy from `nas tasks {task.name}`" if is_built_in else "the task's file"
    other = "give this member a gate" if isinstance(task, Suite) else "search with `--region none`"
    return f"Train longer (more epochs, in {copy}), or {other}."
