"""The parts of a run: its tasks, its objectives with their limits, and its proposer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from nas.common.config import near
from nas.common.differences import mean_and_error
from nas.common.errors import ConfigError, NasWarning, RunError, SpaceError
from nas.common.objectives import (
    COST_REFERENCE,
    QUALITY,
    Metric,
    Objective,
    SearchConfig,
    of_metric,
)
from nas.costs import COSTS, CostContext, costs_of
from nas.evaluation.study import cost_context, study
from nas.evaluation.trainer import budget_of
from nas.evaluation.trial import Evaluator, Training
from nas.genome.mechanisms import mechanism
from nas.searching.algorithm import ALGORITHMS, SearchContext
from nas.searching.archive import Archive
from nas.searching.filtering import CandidateFilter
from nas.searching.proposing import Proposer
from nas.searching.target_archive import TargetArchive
from nas.space import SearchSpace
from nas.space.rules import Policy, load_policy
from nas.space.space import seeds
from nas.space.vary import Variation
from nas.store import RunSetup
from nas.store.frozen import from_text
from nas.tasks import load_task
from nas.tasks.base import Data, ModelTask, Task

REFERENCE_TRAININGS: Final = 3  # trainings of each control, for the limit of a metric
LEAST: Final = 3.0  # least difference of the scores of both controls, in standard errors

# The arguments are a task and its data, and as ``target`` a second task with its data, if any.
MakeEvaluator: TypeAlias = Callable[..., Evaluator]


@dataclass(frozen=True)
class Tasks:
    """The task of a run and its target task, if it has one, each with its data."""

    task: Task
    data: Data
    target: tuple[Task, Data] | None = None

    @property
    def front(self) -> tuple[Task, Data]:
        """The task whose front is searched, and its data."""
        return self.target or (self.task, self.data)

    @property
    def scored(self) -> tuple[ModelTask, Data]:
        """The task whose front is searched, without its gates, and its data."""
        task, data = self.front
        return task.models(data)[""]

    def make(self, make_evaluator: MakeEvaluator) -> Evaluator:
        """Return an evaluator of the task, with ``scored`` as target task if it is another task."""
        if self.scored[0] is self.task:
            return make_evaluator(self.task, self.data)
        return make_evaluator(self.task, self.data, target=self.scored)


def longer_task(name: str, run_task: Task, argument: str) -> Task:
    """Load a task with the data of the run's task; ConfigError if its family (``kind``) is another.

    The family of a gated task is that of its scored task. The message names ``argument``.
    """
    family, found = run_task.main.kind, load_task(name).main.kind
    if found != family:
        raise ConfigError(
            f"{argument}: task {name!r} is of the family {found!r}; expected one of the run's "
            f"family, {family!r}, so that scores mean the same."
        )
    return load_task(name, data=run_task.main.data)


def target_task(name: str, run_task: Task) -> Task:
    """Load the target task of a run; raise ConfigError if it is gated or the run's own task."""
    task = longer_task(name, run_task, "target")
    if task.fingerprint() == run_task.fingerprint():
        raise ConfigError(f"target: {name!r} is the task of the search; expected a longer one.")
    if task is not task.main:
        raise ConfigError(
            f"target: task {name!r} has gates; expected a task without, since mechanisms that miss "
            "a gate of the short task are not trained under the target task."
        )
    return task


def check_measures(task: Task, data: Data, metric: str) -> None:
    """Raise ConfigError if a task does not measure a metric of the run's task."""
    names = [measured.name for measured in task.metrics(data)]
    if metric not in names:
        raise ConfigError(
            f"task {task.name!r} measures {', '.join(names)}; expected one that measures {metric}, "
            "as the run's task does."
        )


def check_space(space: SearchSpace, *, is_causal: bool = False) -> None:
    """Raise ConfigError if a space contradicts its policy (path rules) or its named mechanisms."""
    policy = load_policy(space.policy)
    seeds(space, policy, is_causal)
    Variation(space, policy, is_causal).sample(np.random.default_rng(0))


def starting_with(space: SearchSpace, reference: str, is_causal: bool) -> SearchSpace:
    """Return the space that also names the reference, if it contains it and names mechanisms."""
    if not space.mechanisms or reference in space.mechanisms:
        return space
    with suppress(SpaceError):
        alone = space.model_copy(update={"mechanisms": (reference,)})
        if seeds(alone, load_policy(space.policy), is_causal):
            return space.model_copy(update={"mechanisms": (reference, *space.mechanisms)})
    return space


def relative_limits(space: SearchSpace, metrics: Sequence[Metric]) -> dict[str, float | None]:
    """Return the names of a space's objectives, each with its limit in ``space.region`` or None.

    The name "quality" stands for the first of the task's ``metrics``. SpaceError is raised if an
    objective does not exist or occurs twice, or if a limit belongs to none.
    """
    known = (QUALITY, *(metric.name for metric in metrics), *COSTS.names())
    limits: dict[str, float | None] = {}
    quality = {QUALITY: metrics[0].name}
    for name in (quality.get(name, name) for name in space.objectives):
        if name not in known:
            raise SpaceError(
                f"space {space.name}, objectives: there is no objective {name!r}"
                f"{near(name, known)}; expected some of {', '.join(known)}.{COSTS.complaints()}"
            )
        if name in limits:
            raise SpaceError(f"space {space.name}, objectives: {name!r} stands twice.")
        limits[name] = None
    for name, limit in space.region.items():
        if quality.get(name, name) not in limits:
            objectives = dict.fromkeys([*space.objectives, *limits])
            raise SpaceError(
                f"space {space.name}, region: {name!r} is no objective{near(name, objectives)}; "
                f"expected some of {', '.join(objectives)}."
            )
        limits[quality.get(name, name)] = limit
    return limits


def make_objectives(
    limits: Mapping[str, float | None],
    metrics: Sequence[Metric],
    context: CostContext,
    reference: str,
    trainings: Iterable[Training] = (),
) -> tuple[Objective, ...]:
    """Return objectives with ideal values, reference values and limits.

    The reference value of a metric is the score of an untrained model. The reference value of a
    cost is twice the cost of the mechanism ``reference``, and the ideal value is 0. Limits of costs
    are relative to this mechanism, limits of metrics to ``trainings`` (``train_references``).
    """
    measured = {metric.name: metric for metric in metrics}
    resolved = context.resolve(mechanism(reference).genome)
    costs = costs_of(resolved, context, [name for name in limits if name not in measured])
    objectives = []
    for name, limit in limits.items():
        if name in measured:
            metric, objective = measured[name], of_metric(measured[name])
            if limit is not None:
                objective = replace(objective, limit=limit_of(metric, limit, reference, trainings))
        else:
            cost, value = COSTS[name], costs[name]
            objective = Objective(
                name, "min", cost.unit, cost.about, 0.0, COST_REFERENCE * value, is_metric=False,
                limit=None if limit is None else limit * value,
            )  # fmt: skip
        objectives.append(objective)
    return tuple(objectives)


def train_references(
    task: ModelTask,
    data: Data,
    evaluator: Evaluator,
    *,
    seed: int,
    on_reference: Callable[[int, int], None],
) -> list[Training]:
    """Train the reference and ``uniform`` without gates; raise RunError if a training fails.

    ``on_reference`` is called with the number of finished trainings and the total number.
    """
    trainings: list[Training] = []
    for training in study(
        [(name, mechanism(name).genome) for name in task.controls],
        task,
        data,
        lambda: evaluator,
        repeats=range(REFERENCE_TRAININGS),
        seed=seed,
        purpose="reference",
    ):
        if not training.evaluation.is_ok:
            raise RunError(
                f"task {task.name!r}: {training.name}, to which others are compared, could not be "
                f"trained: {training.evaluation.error}"
            )
        trainings.append(training)
        on_reference(len(trainings), len(task.controls) * REFERENCE_TRAININGS)
    return trainings


def limit_of(
    metric: Metric, share: float, reference: str, trainings: Iterable[Training]
) -> float | None:
    """Return the value of a metric at a share of the way from ``uniform`` to the reference.

    If the reference is not clearly better than ``uniform``, a NasWarning says so, and the limit is
    None. If the limit is better than the best possible value, SpaceError is raised.
    """
    ordered = sorted(trainings, key=lambda training: training.repeat)
    (best, error_best), (uniform, error_uniform) = (
        mean_and_error([t.evaluation.metrics[metric.name] for t in ordered if t.name == name])
        for name in (reference, "uniform")
    )
    error = ((error_best or 0.0) ** 2 + (error_uniform or 0.0) ** 2) ** 0.5
    objective = of_metric(metric)
    if not objective.as_cost(uniform - best) > LEAST * error:
        warnings.warn(
            f"task {ordered[0].task_name!r}: {metric.name} is {metric.text(best)} for {reference} "
            f"and {metric.text(uniform)} for `uniform`, the mean of all tokens, less "
            f"than {LEAST:g} standard errors ({metric.text(error)}) better. {metric.name} has no "
            "limit in this search; more data or epochs (in a copy from `nas tasks NAME`) make a "
            "difference measurable.",
            NasWarning,
            stacklevel=2,
        )
        return None
    limit = best + (1.0 - share) * (uniform - best)
    if objective.as_cost(limit) < objective.as_cost(metric.ideal):
        raise SpaceError(
            f"region: the limit {share:g} of {metric.name} is {metric.text(limit)}, beyond the "
            f"best possible value {metric.text(metric.ideal)}; expected a smaller share."
        )
    return limit


def lag_of(config: SearchConfig) -> int | None:
    """Return the lag of a search, or else its algorithm's; None for complete generations."""
    lag = getattr(ALGORITHMS[config.algorithm], "lag", None)
    return config.lag or (lag and min(lag, config.population))


def run_cost_context(setup: RunSetup, task: Task) -> CostContext:
    """Return the sizes and options at which costs of a run's mechanisms are computed for a task."""
    return cost_context(task, setup.calibration, from_text(setup.space, SearchSpace).context)


def run_proposer(setup: RunSetup, tasks: Tasks) -> Proposer:
    """Return a proposer for a run, see ``make_proposer``."""
    context = run_cost_context(setup, tasks.task)
    if tasks.target is None:
        return make_proposer(setup, context)
    target = run_cost_context(setup, tasks.target[0])
    ratio = _work(target, *tasks.target) / _work(context, tasks.task, tasks.data)
    return make_proposer(setup, context, target, ratio)


def _work(context: CostContext, task: Task, data: Data) -> float:
    resolved, budget = task.resolve(mechanism(task.main.reference).genome), budget_of(task, data)
    return budget.epochs * budget.examples * costs_of(resolved, context, ["macs"])["macs"]


def make_proposer(
    setup: RunSetup,
    context: CostContext,
    target: CostContext | None = None,
    work_ratio: float = 1.0,
) -> Proposer:
    """Return a proposer; ``context`` is of the run's task, ``target`` of its target task."""
    space = from_text(setup.space, SearchSpace)
    policy = from_text(setup.policy, Policy)
    config, objectives = setup.config, setup.objectives
    costs = [objective.name for objective in objectives if not objective.is_metric]
    # Several trainings of each mechanism show the seed noise without re-evaluations.
    most = math.inf if config.repeats == 1 else 1
    archive = Archive if target is None else TargetArchive
    search_context = SearchContext(
        operators=Variation(space, policy, context.is_causal),
        mechanisms=tuple((m.name, m.genome) for m in seeds(space, policy, context.is_causal)),
        population=config.population,
        objectives=objectives,
        seed=config.seed,
        filter=CandidateFilter(policy, context, costs, target),
        archive=archive(objectives, most_trainings=most, work_ratio=work_ratio),
        lag=lag_of(config),
    )
    return Proposer(ALGORITHMS[config.algorithm](search_context), search_context)
