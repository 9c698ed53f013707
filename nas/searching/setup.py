"""Make the objectives of a run, the proposer that draws its genomes, and the context for costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from nas.common.config import near
from nas.common.errors import ConfigError, SpaceError
from nas.common.objectives import COST_REFERENCE, QUALITY, Metric, Objective, of_metric
from nas.common.search_config import SearchConfig
from nas.compiler import standard_attention
from nas.costs import COSTS, CostContext, costs_of
from nas.evaluation.trial import Budget
from nas.searching.algorithm import ALGORITHMS, SearchContext
from nas.searching.archive import Archive
from nas.searching.filtering import CandidateFilter
from nas.searching.proposing import Proposer
from nas.searching.target_archive import TargetArchive
from nas.space import SearchSpace
from nas.space.rules import PolicyFile, compile_policy, load_policy
from nas.space.space import seeds
from nas.space.vary import Variation
from nas.store import RunSetup
from nas.store.frozen import from_text
from nas.tasks import load_task
from nas.tasks.base import Data, Task
from nas.tasks.suite import WORST, Reference, Suite

# Standard attention has no regret, and the plain mean of all tokens has the regret 1.
REGRETS: Final = Reference(metric=WORST, mha=0.0, uniform=1.0)


def check_space(space: SearchSpace, *, is_causal: bool = False) -> None:
    """Raise ConfigError if a space contradicts its policy (path rules) or its named mechanisms.

    Args:
        is_causal: whether the task is causal, so that no token may attend to later tokens.
    """
    policy = load_policy(space.policy)
    seeds(space, policy, is_causal)
    Variation(space, policy, is_causal).sample(np.random.default_rng(0))


def objective_names(space: SearchSpace, metrics: Sequence[Metric]) -> tuple[str, ...]:
    """Return the names of a space's objectives.

    The name "quality" is replaced by the name of the task's first metric.

    Args:
        metrics: the metrics of the task.

    Raises:
        SpaceError: an objective does not exist or occurs twice.
    """
    known = (QUALITY, *(metric.name for metric in metrics), *COSTS.names())
    names = tuple(metrics[0].name if name == QUALITY else name for name in space.objectives)
    for name in names:
        if name not in known:
            raise SpaceError(
                f"space {space.name}, objectives: there is no objective {name!r}"
                f"{near(name, known)}; expected some of {', '.join(known)}.{COSTS.complaints()}"
            )
        if names.count(name) > 1:
            raise SpaceError(f"space {space.name}, objectives: {name!r} stands twice.")
    return names


def region_of(space: SearchSpace, metrics: Sequence[Metric]) -> dict[str, float]:
    """Return the limits of a space's region by the names of objectives.

    Raises:
        SpaceError: a limit does not belong to an objective of the space.
    """
    names, region = objective_names(space, metrics), dict[str, float]()
    for name, limit in space.region.items():
        full = metrics[0].name if name == QUALITY else name
        if full not in names:
            known = dict.fromkeys([*space.objectives, *names])
            raise SpaceError(
                f"space {space.name}, region: {name!r} is no objective{near(name, known)}; "
                f"expected some of {', '.join(known)}."
            )
        if full in region:
            raise SpaceError(f"space {space.name}, region: {full!r} has two limits.")
        region[full] = limit
    return region


def make_objectives(
    names: Sequence[str],
    metrics: Sequence[Metric],
    context: CostContext,
    region: Mapping[str, float] | None = None,
    references: Mapping[str, Reference] | None = None,
) -> tuple[Objective, ...]:
    """Return objectives with ideal values, reference values and limits.

    The reference value of a metric is the score of an untrained model. The reference value of a
    cost is twice the cost of standard attention, and the ideal value is 0.

    Args:
        names: names of metrics of the task and of costs.
        metrics: the metrics of the task.
        context: sizes and options at which costs are computed.
        region: limits by objective, as in ``SearchSpace.region``.
        references: scores of standard attention and of the plain mean, by metric. A metric without
            them has no limit yet.
    """
    region, references = region or {}, {WORST: REGRETS} | dict(references or {})
    objectives = {metric.name: of_metric(metric) for metric in metrics}
    mha = standard_attention(context.sizes, context.is_causal)
    costs = [name for name in names if name not in objectives]
    for name, value in costs_of(mha, context, costs).items():
        cost, reference = COSTS.get(name), COST_REFERENCE * value
        limit = region[name] * value if name in region else None
        objectives[name] = Objective(
            name, "min", cost.unit, cost.about, 0.0, reference, is_metric=False, limit=limit
        )
    for name in region.keys() & references.keys():
        limit, found = references[name].score(1.0 - region[name]), objectives[name]
        if found.as_cost(limit) < found.as_cost(found.ideal):
            raise SpaceError(
                f"region: the limit {region[name]:g} of {name} is {limit:.4g}, beyond the best "
                f"possible value {found.ideal:g}; expected a smaller share."
            )
        objectives[name] = replace(found, limit=limit)
    return tuple(objectives[name] for name in names)


def cost_context(
    task: Task, calibration: Mapping[str, Any], context: int | None = None
) -> CostContext:
    """Return the sizes and options at which costs of a task's mechanisms are computed.

    Args:
        calibration: times of elementary operations that were measured on this machine, to predict
            the cost ``time_ms``.
        context: number of tokens at which costs of decoding are computed.
    """
    model = task.main
    return CostContext(model.sizes, model.qkv_bias, model.is_causal, calibration, context)


def work_of(context: CostContext, budget: Budget) -> float:
    """Return multiply-adds of attention in a training of standard attention, as a measure of time.

    Only ratios of the values of two tasks of a family are meaningful.
    """
    mha = standard_attention(context.sizes, context.is_causal)
    return budget.epochs * budget.examples * costs_of(mha, context, ["macs"])["macs"]


def longer_task(name: str, run_task: Task, argument: str) -> Task:
    """Load a task of the same family as the run's task (``Task.kind``), with the same data.

    Args:
        name: name or path of the task.
        run_task: the run's task.
        argument: name of the argument in the error message.

    Raises:
        ConfigError: the task is of another family.
    """
    task = load_task(name)
    if task.kind != run_task.kind:
        raise ConfigError(
            f"{argument}: task {name!r} is of the family {task.kind!r}; expected one of the run's "
            f"family, {run_task.kind!r}, so that scores mean the same."
        )
    return load_task(name, data=run_task.data) if run_task.data else task


def target_task(name: str, run_task: Task) -> Task:
    """Load the target task of a run whose task is single, or a suite with one score.

    Args:
        name: name or path of the target task, which must be of the family of the scored task.
        run_task: the run's task.

    Raises:
        ConfigError: the target is a suite, the run's task has several scores, or their families
            differ.
    """
    scored = run_task.only if isinstance(run_task, Suite) else run_task
    if scored is None or isinstance(load_task(name), Suite):
        raise ConfigError(
            f"target: the tasks {run_task.name!r} and {name!r} must each have one score; expected "
            "single tasks, or as the short task a suite whose other tasks have gates."
        )
    return longer_task(name, scored, "target")


def check_measures(task: Task, data: Data, metric: str) -> None:
    """Raise ConfigError if a longer task does not measure a metric of the run's task."""
    names = [measured.name for measured in task.metrics(data)]
    if metric not in names:
        raise ConfigError(
            f"task {task.name!r} measures {', '.join(names)}; expected one that measures {metric}, "
            "as the run's task does."
        )


def run_cost_context(setup: RunSetup, task: Task) -> CostContext:
    """Return the sizes and options at which costs of a run's mechanisms are computed.

    Args:
        task: the run's task or another task.
    """
    return cost_context(task, setup.calibration, from_text(setup.space, SearchSpace).context)


def lag_of(config: SearchConfig) -> int | None:
    """Return the lag of a search: its own, or its algorithm's, which is at most a generation.

    None means that proposals are computed from the results of complete generations.
    """
    lag = getattr(ALGORITHMS.get(config.algorithm), "lag", None)
    return config.lag or (lag and min(lag, config.population))


@dataclass(frozen=True)
class TargetSizes:
    """What proposals depend on of a target task.

    Attributes:
        context: sizes and options at which costs are computed.
        work_ratio: work of a target training relative to a short training.
    """

    context: CostContext
    work_ratio: float


def make_proposer(
    setup: RunSetup, context: CostContext, target: TargetSizes | None = None
) -> Proposer:
    """Return a proposer for a run, made from the copies of its space and its policy (path rules).

    Args:
        context: sizes and options of the run's task.
        target: sizes of the run's target task; None if it has none.

    Raises:
        ConfigError: the space contradicts its policy or its named mechanisms.
    """
    space = from_text(setup.space, SearchSpace)
    policy = compile_policy(from_text(setup.policy, PolicyFile), setup.policy.name)
    config = setup.config
    algorithm = ALGORITHMS.get(config.algorithm)
    costs = (objective.name for objective in setup.objectives if not objective.is_metric)
    # Several trainings of each mechanism show the seed noise without re-evaluations.
    most_trainings = math.inf if config.repeats == 1 else 1
    archive = (
        Archive(setup.objectives, most_trainings=most_trainings)
        if target is None
        else TargetArchive(
            setup.objectives, most_trainings=most_trainings, work_ratio=target.work_ratio
        )
    )
    search_context = SearchContext(
        operators=Variation(space, policy, context.is_causal),
        mechanisms=tuple((m.name, m.genome) for m in seeds(space, policy, context.is_causal)),
        population=config.population,
        objectives=setup.objectives,
        seed=config.seed,
        filter=CandidateFilter(policy, context, costs, None if target is None else target.context),
        archive=archive,
        lag=lag_of(config),
    )
    return Proposer(algorithm(search_context), search_context)
