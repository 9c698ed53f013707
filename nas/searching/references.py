"""Reference scores of a suite, that is, of a task that consists of several tasks.

A suite measures regrets: how much worse a mechanism is in a task than standard attention, where the
distance to ``uniform`` (the plain mean of all tokens) is 1. These two reference mechanisms are
trained once, before the first proposal, and recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeGuard

from nas.common.differences import mean_and_error
from nas.common.errors import RunError
from nas.common.objectives import of_metric
from nas.evaluation.study import study
from nas.evaluation.trial import Evaluator, Training
from nas.genome.mechanisms import mechanism
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
    suite: Suite,
    data: Data,
    evaluator: Evaluator,
    on_reference: Callable[[int, int], None],
) -> Suite:
    """Train standard attention and ``uniform`` under a suite; return the suite with their scores.

    Each training is recorded. Trainings that are recorded already are not repeated.

    Args:
        data: data of the suite.
        evaluator: an evaluator for ``suite.without_gates()``, the tasks of the suite that measure a
            regret.
        on_reference: called with the number of finished trainings and the total number.

    Raises:
        RunError: a training failed, or standard attention is not clearly better than the mean of
            all tokens in one of the tasks.
    """
    recorded = writer.run.trainings("reference")
    done = {(training.key, training.repeat) for training in recorded}
    trainings = []
    for training in study(
        [(name, mechanism(name).genome) for name in NAMES],
        suite.without_gates(),
        data,
        evaluator,
        repeats=TRAININGS,
        seed=writer.run.setup.config.seed,
        purpose="reference",
        known=recorded,
    ):
        trainings.append(training)
        if (training.key, training.repeat) not in done or not training.evaluation.is_ok:
            writer.record_training(training)
        if not training.evaluation.is_ok:
            raise RunError(
                f"task {suite.name!r}: {training.name}, which regrets are relative to, could not "
                f"be trained: {training.evaluation.error}"
            )
        on_reference(len(trainings), len(NAMES) * TRAININGS)
    return suite.with_references(
        {name: _reference(suite, name, data, trainings) for name in suite.regret_tasks}
    )


def _reference(suite: Suite, name: str, data: Data, trainings: Iterable[Training]) -> Reference:
    """Return the mean scores of standard attention and ``uniform`` in one task of a suite.

    Args:
        trainings: trainings of both mechanisms under the suite.

    Raises:
        RunError: standard attention is not clearly better than the mean of all tokens.
    """
    metric = suite.regret_tasks[name].metrics(data.parts[name])[0]
    scores: dict[str, list[float]] = {mechanism: [] for mechanism in NAMES}
    for training in sorted(trainings, key=lambda training: training.repeat):
        value = training.evaluation.metrics[f"{name}.{metric.name}"]
        scores[str(training.name)].append(value)
    (mha, error_mha), (uniform, error_uniform) = (mean_and_error(scores[n]) for n in NAMES)
    error = ((error_mha or 0.0) ** 2 + (error_uniform or 0.0) ** 2) ** 0.5
    if not of_metric(metric).as_cost(uniform - mha) > LEAST * error:
        raise RunError(
            f"task {suite.name!r}: in {name} standard attention is not clearly better than the "
            f"mean of all tokens ({metric.name} {mha:.4g} and {uniform:.4g}, standard error of the "
            f"difference {error:.2g}), so there is no regret in it; expected a longer training or "
            "a gate."
        )
    return Reference(metric=metric.name, mha=mha, uniform=uniform)
