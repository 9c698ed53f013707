"""``nas.evaluate``: train mechanisms without a search, and compare them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from nas.api.execution import DEFAULT_POLICY, DEFAULT_TASK, Executing, resolve_legal, task_for
from nas.common.arguments import public
from nas.common.errors import ConfigError
from nas.common.objectives import MAX_SEED, check_count
from nas.common.rates import CHOOSING_SEEDS
from nas.costs import default_costs
from nas.evaluation.execution import Execution, make_evaluator
from nas.evaluation.study import (
    cost_context,
    costs_under,
    on_demand,
    resolve_under,
    study,
    study_at_rates,
    tries_rates,
    why_not,
)
from nas.evaluation.trial import Evaluator, Purpose
from nas.genome import Genome
from nas.report.comparison import Comparison, TrainingRow, compare
from nas.store import RUNS
from nas.store.sources import Source, labelled
from nas.store.writer import RunRecord
from nas.tasks import Data, Task, load_task
from nas.training.user_module import Mechanism, UserModule


@public
def evaluate(
    sources: str | Path | Genome | Sequence[str | Path | Genome],
    *,
    tasks: str | Sequence[str] = (),
    against: str | Path | Genome | None = None,
    data: str | Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    seeds: int = 1,
    seed: int = 0,
    rates: bool | None = None,
    policy: str = DEFAULT_POLICY,
    record: str | Path | None = None,
    test: bool = False,
    runs: str | Path = RUNS,
    on_training: Callable[[TrainingRow, int, int], None] | None = None,
    **execution: Unpack[Executing],
) -> Comparison:
    """Train mechanisms under one or several tasks, and compare them with a reference.

    Differences are between trainings that share their seed. Trainings of a mechanism of a run are
    stored in the run. Stored trainings are not repeated.

    Examples:
        >>> result = nas.evaluate(["mha", "uniform"], tasks="tiny.yaml", seeds=2, backend="local")
        >>> sorted(result.table["mechanism"])
        ['mha', 'uniform']
        >>> result.rows[1].parts["tiny"].difference.verdict
        'undecided'

    Args:
        tasks: names or paths of tasks; by default the task and data of the run of the first source
            that names a mechanism of a run, else vit-cifar10.
        against: the reference; by default the first source.
        data: training data; with several tasks a mapping from a task as it is in ``tasks``.
        test: whether to evaluate on test sets instead of examples held out of training.
        Others: see ``nas.api.execution``.

    Raises:
        ConfigError: a mechanism cannot be trained under any of the tasks.
    """
    check_count("seeds", seeds)
    check_count("seed", seed, 0, MAX_SEED)
    options = Execution(**execution)
    given = [sources] if isinstance(sources, str | Path | Genome) else [*sources]
    check_count("number of sources", len(given))
    compared = resolve_legal(given if against is None else [against, *given], policy, runs)
    named = labelled(compared)
    loaded = _load_tasks([tasks] if isinstance(tasks, str) else tasks, data, overrides, compared)
    wanted = rates if len(named) > 1 else bool(rates)
    is_tuned = tries_rates(wanted, loaded.values(), seeds, test)
    # All data are loaded before the first training, so that missing data are reported at once.
    examples = {n: task.load_test() if test else task.load() for n, task in loaded.items()}
    with RunRecord([source.run for source in compared if source.run], record) as recorded:
        return train_and_compare(
            named, loaded, examples, recorded, options, seeds, seed, is_tuned, on_training, test
        )


def train_and_compare(
    named: Mapping[str, Mechanism],
    tasks: Mapping[str, Task],
    data: Mapping[str, Data],
    record: RunRecord,
    options: Execution,
    seeds: int,
    seed: int,
    is_tuned: bool,
    on_training: Callable[[TrainingRow, int, int], None] | None,
    test: bool = False,
) -> Comparison:
    """Train named mechanisms under tasks, each with its data; compare them with the first one."""
    absent = untrainable(named, tasks, options.time_limit)
    present = {
        name: [each for each in named.items() if name not in absent.get(each[0], {})]
        for name in tasks
    }
    repeats = range(seeds + CHOOSING_SEEDS if is_tuned else seeds)
    total = len(repeats) * sum(
        len(present[name]) * (len(task.at_rates()) if is_tuned else 1)
        for name, task in tasks.items()
    )
    trained: list[TrainingRow] = []
    for name, task in tasks.items():
        place = task, data[name]
        with on_demand(partial(make_evaluator, options, *place)) as evaluator:
            for _, row in train(
                present[name], *place, evaluator, record, repeats, seed, is_tuned=is_tuned
            ):
                trained.append(row)
                if on_training is not None:
                    on_training(row, len(trained), total)
    order = [*named]
    trained.sort(key=lambda row: (order.index(row.mechanism), row.repeat))
    reference = order[0] if len(order) > 1 else None
    return compare(
        trained, {name: name for name in tasks}, reference, seeds, absent=absent, test=test
    )


def _load_tasks(
    tasks: Sequence[str],
    data: str | Mapping[str, str] | None,
    overrides: Mapping[str, Any] | None,
    sources: Sequence[Source],
) -> dict[str, Task]:
    if isinstance(data, str) and len(tasks) > 1:
        raise ConfigError(f"data: found {data!r} for several tasks; expected a text for each.")
    if not tasks and not isinstance(data, Mapping):
        loaded: list[Task] = [task_for(sources, None, data, overrides)]
    else:
        named = tasks or [DEFAULT_TASK]
        specs = data if isinstance(data, Mapping) else dict.fromkeys(named, data)
        if unknown := specs.keys() - {*named}:
            found, names = ", ".join(sorted(unknown)), ", ".join(named)
            raise ConfigError(f"data: found {found}; expected a text for each of {names}.")
        loaded = [load_task(t, data=specs.get(t), overrides=overrides).main for t in named]
    by_name = {task.name: task for task in loaded}
    if len(by_name) < len(tasks):
        raise ConfigError(f"tasks: found {', '.join(tasks)}; expected each once, by its own name.")
    return by_name


def untrainable(
    named: Mapping[str, Mechanism], tasks: Mapping[str, Task], time_limit: float | None
) -> dict[str, dict[str, str]]:
    """Return why mechanisms cannot be trained, by name, then by task; raise if under none."""
    absent: dict[str, dict[str, str]] = {}
    for text, mechanism in named.items():
        for name, task in tasks.items():
            if reason := why_not(mechanism, task, time_limit):
                absent.setdefault(text, {})[name] = reason
        if len(absent.get(text, ())) == len(tasks):
            raise ConfigError(next(iter(absent[text].values())))
    return absent


def train(
    named: Sequence[tuple[str, Mechanism]],
    task: Task,
    data: Data,
    evaluator: Callable[[], Evaluator],
    record: RunRecord,
    repeats: range,
    seed: int,
    purpose: Purpose = "evaluate",
    calibration: Mapping[str, Any] = {},
    *,
    is_tuned: bool = False,
    rates: Mapping[str, Iterable[float]] | None = None,
) -> Iterator[tuple[str, TrainingRow]]:
    """Train named mechanisms as ``study`` does; yield each recorded training after its key.

    Its costs are the default costs; with a ``calibration``, ``time_ms`` is among them. Trainings
    are those of ``study_at_rates`` if ``is_tuned``, else at ``rates``.
    """
    metric, context = task.metrics(data)[0], cost_context(task, calibration)
    shown = default_costs(is_calibrated=True) if calibration else None
    forms = [resolve_under(task, mechanism) for _, mechanism in named]
    costs = {form.key: costs_under(form, context, shown) for form in forms}
    start = partial(study_at_rates, metric=metric) if is_tuned else partial(study, rates=rates)
    trainings = start(
        named,
        task,
        data,
        evaluator,
        repeats=repeats,
        seed=seed,
        purpose=purpose,
        known=record.trainings(purpose),
    )
    measured = {form.key for form in forms if isinstance(form, UserModule)}
    for training in trainings:
        record.add(training)
        row = TrainingRow(
            training.name,
            training.digest,
            task.name,
            training.repeat,
            training.evaluation,
            costs[training.key],
            metric,
            training.key in measured,
            training.learning_rate,
        )
        yield training.key, row
