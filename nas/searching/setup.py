"""The parts of a run: its tasks, its objectives, the context of costs, and its proposer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from nas.common.config import near
from nas.common.errors import ConfigError, SpaceError
from nas.common.objectives import (
    COST_REFERENCE,
    QUALITY,
    Metric,
    Objective,
    SearchConfig,
    of_metric,
)
from nas.compiler import standard_attention
from nas.costs import COSTS, CostContext, costs_of
from nas.evaluation.study import cost_context
from nas.evaluation.trainer import budget_of
from nas.evaluation.trial import Evaluator, Training
from nas.searching.algorithm import ALGORITHMS, SearchContext
from nas.searching.archive import Archive
from nas.searching.filtering import CandidateFilter
from nas.searching.proposing import Proposer
from nas.searching.references import limit_of
from nas.searching.target_archive import TargetArchive
from nas.space import SearchSpace
from nas.space.rules import PolicyFile, compile_policy, load_policy
from nas.space.space import seeds
from nas.space.vary import Variation
from nas.store import RunSetup
from nas.store.frozen import from_text
from nas.tasks import load_task
from nas.tasks.base import Data, ModelTask, Task

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

    def check(self, limits: Mapping[str, float | None], metrics: Sequence[Metric]) -> None:
        """Raise ConfigError if the tasks do not measure the metrics that the run optimises.

        Args:
            limits: the result of ``relative_limits``.
        """
        task, front = self.task, self.front[0]
        if task.main.is_causal != front.main.is_causal:
            raise ConfigError(
                f"target: one of the tasks {task.name!r} and {front.name!r} is causal; expected "
                "both or none."
            )
        for metric in (metric.name for metric in metrics if metric.name in limits):
            check_measures(task, self.data, metric)
            if limits[metric] is not None:
                check_measures(*self.scored, metric)


def check_space(space: SearchSpace, *, is_causal: bool = False) -> None:
    """Raise ConfigError if a space contradicts its policy (path rules) or its named mechanisms."""
    policy = load_policy(space.policy)
    seeds(space, policy, is_causal)
    Variation(space, policy, is_causal).sample(np.random.default_rng(0))


def relative_limits(space: SearchSpace, metrics: Sequence[Metric]) -> dict[str, float | None]:
    """Return the names of a space's objectives, each with its limit in ``space.region`` or None.

    The name "quality" stands for the first of the task's ``metrics``.

    Raises:
        SpaceError: an objective does not exist or occurs twice, or a limit belongs to none.
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
        full = quality.get(name, name)
        if full not in limits:
            objectives = dict.fromkeys([*space.objectives, *limits])
            raise SpaceError(
                f"space {space.name}, region: {name!r} is no objective{near(name, objectives)}; "
                f"expected some of {', '.join(objectives)}."
            )
        if limits[full] is not None:
            raise SpaceError(f"space {space.name}, region: {full!r} has two limits.")
        limits[full] = limit
    return limits


def make_objectives(
    limits: Mapping[str, float | None],
    metrics: Sequence[Metric],
    context: CostContext,
    references: Iterable[Training] = (),
) -> tuple[Objective, ...]:
    """Return objectives with ideal values, reference values and limits.

    The reference value of a metric is the score of an untrained model. The reference value of a
    cost is twice the cost of standard attention, and the ideal value is 0.

    Args:
        limits: the result of ``relative_limits``. A limit of a cost is relative to standard
            attention, and a limit of a metric to ``references`` (``train_references``).
        context: sizes and options at which costs are computed.
    """
    measured = {metric.name: metric for metric in metrics}
    mha = standard_attention(context.sizes, context.is_causal)
    costs = costs_of(mha, context, [name for name in limits if name not in measured])
    objectives = []
    for name, limit in limits.items():
        if name in measured:
            metric, objective = measured[name], of_metric(measured[name])
            if limit is not None:
                objective = replace(objective, limit=limit_of(metric, limit, references))
        else:
            cost, value = COSTS[name], costs[name]
            objective = Objective(
                name, "min", cost.unit, cost.about, 0.0, COST_REFERENCE * value, is_metric=False,
                limit=None if limit is None else limit * value,
            )  # fmt: skip
        objectives.append(objective)
    return tuple(objectives)


def run_cost_context(setup: RunSetup, task: Task) -> CostContext:
    """Return the sizes and options at which costs of a run's mechanisms are computed for a task."""
    return cost_context(task, setup.calibration, from_text(setup.space, SearchSpace).context)


def longer_task(name: str, run_task: Task, argument: str) -> Task:
    """Load a task of the same family as the run's task (``Task.kind``), with the same data.

    The family of a gated task is that of its scored task. ``argument`` is named in the message.

    Raises:
        ConfigError: the task is of another family.
    """
    family, found = run_task.main.kind, load_task(name).main.kind
    if found != family:
        raise ConfigError(
            f"{argument}: task {name!r} is of the family {found!r}; expected one of the run's "
            f"family, {family!r}, so that scores mean the same."
        )
    return load_task(name, data=run_task.main.data)


def target_task(name: str, run_task: Task) -> Task:
    """Load the target task of a run, see ``longer_task``; ConfigError if it is gated."""
    task = longer_task(name, run_task, "target")
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


def lag_of(config: SearchConfig) -> int | None:
    """Return the lag of a search: its own, or its algorithm's, which is at most a generation.

    None means that proposals are computed from the results of complete generations.
    """
    lag = getattr(ALGORITHMS[config.algorithm], "lag", None)
    return config.lag or (lag and min(lag, config.population))


def run_proposer(setup: RunSetup, tasks: Tasks) -> Proposer:
    """Return a proposer for a run, see ``make_proposer``."""
    context = run_cost_context(setup, tasks.task)
    if tasks.target is None:
        return make_proposer(setup, context)
    target = run_cost_context(setup, tasks.target[0])
    ratio = _work(target, *tasks.target) / _work(context, tasks.task, tasks.data)
    return make_proposer(setup, context, target, ratio)


def _work(context: CostContext, task: Task, data: Data) -> float:
    """Return multiply-adds of attention in a training of standard attention."""
    mha, budget = standard_attention(context.sizes, context.is_causal), budget_of(task, data)
    return budget.epochs * budget.examples * costs_of(mha, context, ["macs"])["macs"]


def make_proposer(
    setup: RunSetup,
    context: CostContext,
    target: CostContext | None = None,
    work_ratio: float = 1.0,
) -> Proposer:
    """Return a proposer for a run, made from the copies of its space and its policy (path rules).

    Args:
        context: sizes and options of the run's task.
        target: those of its target task; None if it has none.
        work_ratio: work of a target training relative to a short training.

    Raises:
        ConfigError: the space contradicts its policy or its named mechanisms.
    """
    space = from_text(setup.space, SearchSpace)
    policy = compile_policy(from_text(setup.policy, PolicyFile), setup.policy.name)
    config, objectives = setup.config, setup.objectives
    costs = [objective.name for objective in objectives if not objective.is_metric]
    # Several trainings of each mechanism show the seed noise without re-evaluations.
    most = math.inf if config.repeats == 1 else 1
    search_context = SearchContext(
        operators=Variation(space, policy, context.is_causal),
        mechanisms=tuple((m.name, m.genome) for m in seeds(space, policy, context.is_causal)),
        population=config.population,
        objectives=objectives,
        seed=config.seed,
        filter=CandidateFilter(policy, context, costs, target),
        archive=Archive(objectives, most_trainings=most)
        if target is None
        else TargetArchive(objectives, most_trainings=most, work_ratio=work_ratio),
        lag=lag_of(config),
    )
    return Proposer(ALGORITHMS[config.algorithm](search_context), search_context)
