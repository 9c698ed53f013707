"""Begin or resume a search, for the commands ``nas search`` and ``nas resume`` and for Python.

The caller supplies a space, a task, a function that makes evaluators, and a listener. After Ctrl-C,
SIGTERM, an error or ``kill -9``, only the trainings that were running are lost.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from nas.common.errors import ConfigError, NasWarning
from nas.common.objectives import Objective
from nas.common.search_config import SearchConfig, check_count
from nas.costs import need_calibration
from nas.evaluation.trainer import budget_of
from nas.evaluation.trial import REASONS, RETRIED, Evaluator, Reason
from nas.searching.algorithm import ALGORITHMS
from nas.searching.front_file import write_front
from nas.searching.listener import EndStatus, Listener, SearchResult, Started
from nas.searching.loop import Loop
from nas.searching.proposing import MAX_ATTEMPTS
from nas.searching.references import (
    is_lacking_references,
    provisional,
    reference_of,
    train_references,
    with_references,
)
from nas.searching.setup import (
    TargetSizes,
    check_measures,
    check_space,
    cost_context,
    lag_of,
    make_objectives,
    make_proposer,
    objective_names,
    region_of,
    run_cost_context,
    work_of,
)
from nas.space import SearchSpace
from nas.store import (
    RUNS,
    Run,
    RunSetup,
    RunWriter,
    check_name,
    checkpoint_wal,
    create_run,
    open_run,
    open_writer,
    this_session,
)
from nas.store.files import run_argument, sweep
from nas.store.frozen import (
    from_text,
    frozen_space,
    frozen_task,
    load_frozen_task,
    load_unchanged,
)
from nas.store.lock import acquire
from nas.tasks.base import Data, Task
from nas.tasks.suite import Reference, Suite

if TYPE_CHECKING:
    # The arguments are a task and its data, and as ``target`` a target task with its data, if any.
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

    def make(self, make_evaluator: MakeEvaluator) -> Evaluator:
        """Return an evaluator of these tasks."""
        if self.target is None:
            return make_evaluator(self.task, self.data)
        return make_evaluator(self.task, self.data, target=self.target)

    def target_sizes(self, setup: RunSetup) -> TargetSizes | None:
        """Return what proposals depend on of the target task; None without a target task."""
        if self.target is None:
            return None
        contexts = [run_cost_context(setup, task) for task in (self.task, self.target[0])]
        budgets = [budget_of(self.task, self.data), budget_of(*self.target)]
        short, long = (work_of(*pair) for pair in zip(contexts, budgets, strict=True))
        return TargetSizes(contexts[1], long / short)


def run_search(
    space: SearchSpace,
    task: Task,
    config: SearchConfig,
    *,
    target: Task | None = None,
    make_evaluator: MakeEvaluator,
    root: Path = RUNS,
    name: str | None = None,
    command: str = "nas.search",
    listener: Listener | None = None,
) -> SearchResult:
    """Create a run and search until the run is complete, or until Ctrl-C or SIGTERM.

    Args:
        target: a longer task (``target_task``), whose front is searched.
        make_evaluator: a function that returns an evaluator for a task and its data, and, if there
            is a target task, for trials of this task. ``run_search`` closes the returned
            evaluators.
        root: the folder that contains all runs.
        name: name of the run's folder, see ``create_run``.
        command: the command line, which is recorded.

    Raises:
        NasError: the algorithm is unknown, the space, the task or the data cannot be used, or the
            folder cannot be written.
    """
    ALGORITHMS.get(config.algorithm)  # refuse an unknown name before anything is loaded
    check_space(space, is_causal=task.main.is_causal)
    if name is not None:
        check_name(name, root)
    data = task.load()
    listener = Listener() if listener is None else listener
    if target is not None and isinstance(task, Suite):
        task = task.with_references({})  # scores are those of its only member, not regrets
    measured = task
    if target is None and is_lacking_references(task):
        measured = provisional(task, data)
    tasks = Tasks(measured, data, None if target is None else (target, target.load()))
    final, final_data = tasks.front
    metrics = final.metrics(final_data)
    names = objective_names(space, metrics)
    _check_target(tasks, [metric.name for metric in metrics if metric.name in names])
    region = region_of(space, metrics)
    evaluator = tasks.make(make_evaluator)
    try:
        _warn_of_idle_workers(config, evaluator.workers)
        calibration = evaluator.calibrate() if need_calibration(names) else {}
        session = this_session(command, workers=evaluator.workers)
        context = cost_context(final, calibration, space.context)
        objectives = make_objectives(names, metrics, context, region)
        space_copy, policy_copy = frozen_space(space)
        # Without a metric nothing is trained.
        repeats = config.repeats if any(o.is_metric for o in objectives) else 1
        setup = RunSetup(
            config=replace(config, repeats=repeats),
            space=space_copy,
            policy=policy_copy,
            task=frozen_task(task, data),
            objectives=objectives,
            metrics=tuple(metrics),
            calibration=calibration,
            target=None if target is None else frozen_task(*tasks.front),
        )
        with create_run(root, setup, session, name=name) as writer:
            tasks = replace(tasks, task=task)
            return _work(writer, tasks, evaluator, make_evaluator, listener)
    finally:
        evaluator.close()


def resume_search(
    folder: Path,
    *,
    make_evaluator: MakeEvaluator,
    generations: int | None = None,
    data: str | None = None,
    retry_failed: bool = False,
    command: str = "nas resume",
    listener: Listener | None = None,
) -> SearchResult:
    """Resume a run, and repeat trainings that failed because their worker process was lost.

    If the run is complete, nothing is trained, but files that a killed process left incomplete are
    brought up to date.

    Args:
        make_evaluator: a function that returns an evaluator for a task and its data.
        generations: new total number of generations; None leaves the number unchanged. A smaller
            number than before changes nothing.
        data: where the task's data are now, if they were moved. Their content must be the same.
        retry_failed: whether trainings that failed for any other reason are repeated, too.

    Warns:
        NasWarning: versions of libraries or plug-ins differ from the versions of the last session.

    Raises:
        RunError: there is no such run, another process writes it, or its data have changed.
    """
    if generations is not None:
        check_count("generations", generations)
    retried = frozenset(REASONS if retry_failed else RETRIED)
    with open_run(folder) as run:
        setup, sessions = run.setup, run.sessions()
        complete = _result_if_complete(run, generations, retried)
    if complete is not None:
        if data is not None:
            for document in filter(None, (setup.task, setup.target)):
                load_unchanged(folder, document, load_frozen_task(document, data))
        checkpoint_wal(folder)
        sweep(folder)
        with open_run(folder) as run:
            write_front(run)
        return complete
    acquire(folder).release()  # refuse a second process before anything is loaded
    task = load_frozen_task(setup.task, data)
    tasks = Tasks(task, load_unchanged(folder, setup.task, task))
    if setup.target is not None:
        target = load_frozen_task(setup.target, data)
        tasks = replace(tasks, target=(target, load_unchanged(folder, setup.target, target)))
    evaluator = tasks.make(make_evaluator)
    try:
        session = this_session(command, workers=evaluator.workers)
        if sessions:
            _warn_of_changes(sessions[-1].session.versions, session.versions)
        with open_writer(folder, session) as writer:
            writer.raise_generations(generations or setup.config.generations)
            listener = listener or Listener()
            return _work(writer, tasks, evaluator, make_evaluator, listener, retried)
    finally:
        evaluator.close()


def _check_target(tasks: Tasks, metrics: Sequence[str]) -> None:
    """Raise ConfigError if the target task of a run cannot be used.

    Args:
        metrics: the metrics that the run optimises.
    """
    if tasks.target is None:
        return
    (task, data), (target, _) = (tasks.task, tasks.data), tasks.target
    if isinstance(task, Suite):
        (name,) = task.regret_tasks
        task, data = task.regret_tasks[name], data.parts[name]
    if task.main.is_causal != target.main.is_causal:
        raise ConfigError(
            f"target: one of the tasks {task.name!r} and {target.name!r} is causal; expected both "
            "or none."
        )
    for metric in metrics:
        check_measures(task, data, metric)


def _warn_of_idle_workers(config: SearchConfig, workers: int) -> None:
    lag = lag_of(config)
    if lag is not None and workers > lag * config.repeats:
        warnings.warn(
            f"with a lag of {lag}, at most {lag * config.repeats} of the {workers} workers are "
            f"busy; a lag of {3 * workers} keeps all of them busy.",
            NasWarning,
            stacklevel=3,
        )


def _warn_of_changes(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = [
        f"{name} was {before.get(name, 'absent')} and is {now.get(name, 'absent')}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    if changed:
        warnings.warn(
            "the run goes on with other versions than its last session had, which may change "
            f"results: {', '.join(changed)}.",
            NasWarning,
            stacklevel=3,
        )


def _work(
    writer: RunWriter,
    tasks: Tasks,
    evaluator: Evaluator,
    make_evaluator: MakeEvaluator,
    listener: Listener,
    retried: Collection[Reason] = RETRIED,
) -> SearchResult:
    """Search until the run ends, close the run, and return how the search ended.

    Args:
        evaluator: the evaluator of the search. It is closed unused if the task is a suite (several
            tasks) whose reference mechanisms are not trained yet.
        make_evaluator: makes the evaluators of such a suite.
        retried: reasons of failure. Recorded trainings that failed for one of them are repeated.
    """
    run, task = writer.run, tasks.task
    try:
        if tasks.target is None and is_lacking_references(task):
            evaluator.close()
            task = _complete_suite(writer, task, tasks.data, make_evaluator, listener)
            tasks = replace(tasks, task=task)
            with closing(tasks.make(make_evaluator)) as final:
                return _work(writer, tasks, final, make_evaluator, listener, retried)
        _complete_limits(writer, tasks, evaluator, listener)
    except (KeyboardInterrupt, SystemExit):
        return _interrupted(run)
    setup = run.setup
    proposer = make_proposer(setup, run_cost_context(setup, task), tasks.target_sizes(setup))
    recorded = (*run.trainings("search"), *run.trainings("target"))
    done = sum(t.evaluation.reason not in retried for t in recorded)
    listener.on_start(Started(run.name, run.folder, setup, evaluator.workers, done))
    try:
        is_exhausted = Loop(writer, proposer, evaluator, listener, retried=retried).run()
    except (KeyboardInterrupt, SystemExit):  # Ray turns SIGTERM into SystemExit
        result = _interrupted(run)
    else:
        num_trained = run.counts().evaluated
        message = f"Done: {_generations(len(run.generations()))}, {num_trained} mechanisms."
        if is_exhausted:
            message = (
                f"The space is exhausted: {MAX_ATTEMPTS} attempts in a row gave no mechanism that "
                f"was new; {num_trained} were trained."
            )
        result = _result(run, "exhausted" if is_exhausted else "finished", message)
        writer.finish(message if is_exhausted else "")
    write_front(run)
    writer.close()
    listener.on_end(result)
    return result


def _complete_suite(
    writer: RunWriter,
    suite: Suite,
    data: Data,
    make_evaluator: MakeEvaluator,
    listener: Listener,
) -> Suite:
    """Train standard attention and ``uniform``, and return the suite with their scores.

    The suite with these reference scores is recorded in the run.
    """
    with closing(make_evaluator(suite.without_gates(), data)) as evaluator:
        short = suite.without_gates()
        trainings = train_references(writer, short, data, evaluator, listener.on_reference)
    complete = with_references(suite, data, trainings)
    found = {f"{name}.{r.metric}": r for name, r in complete.references.items()}
    document, metrics = frozen_task(complete, data), complete.metrics(data)
    setup = replace(writer.run.setup, task=document, metrics=metrics)
    writer.complete_setup(replace(setup, objectives=_limited(setup, complete, found)))
    return complete


def _complete_limits(
    writer: RunWriter, tasks: Tasks, evaluator: Evaluator, listener: Listener
) -> None:
    """Record limits of metrics that are relative to reference mechanisms, which are trained."""
    setup, (task, data) = writer.run.setup, tasks.front
    region = region_of(from_text(setup.space, SearchSpace), setup.metrics)
    unknown = {o.name for o in setup.objectives if o.is_metric and o.limit is None}
    metrics = [metric for metric in setup.metrics if metric.name in unknown & region.keys()]
    if metrics:
        trainings = train_references(
            writer,
            task,
            data,
            evaluator,
            listener.on_reference,
            is_target=tasks.target is not None,
        )
        found = {metric.name: reference_of(task, metric, trainings) for metric in metrics}
        writer.complete_setup(replace(setup, objectives=_limited(setup, task, found)))


def _limited(
    setup: RunSetup, task: Task, references: Mapping[str, Reference]
) -> tuple[Objective, ...]:
    """Return the objectives of a run with limits, from the references of metrics."""
    region = region_of(from_text(setup.space, SearchSpace), setup.metrics)
    names = [objective.name for objective in setup.objectives]
    context = run_cost_context(setup, task)
    return make_objectives(names, setup.metrics, context, region, references)


def _interrupted(run: Run) -> SearchResult:
    message = (
        f"Interrupted in generation {len(run.generations()) + 1}; every finished training is "
        f"kept. `nas resume {run_argument(run.folder)}` goes on."
    )
    return _result(run, "interrupted", message)


def _result_if_complete(
    run: Run, generations: int | None, retried: Collection[Reason]
) -> SearchResult | None:
    """Return the result of a complete run; None if there is something left to train.

    Args:
        generations: requested total number of generations; None if it stays unchanged.
        retried: reasons of failure. A training that failed for one of them is left to train.
    """
    total = max(run.setup.config.generations, generations or 0)
    is_short = len(run.generations()) < total and not run.is_exhausted
    recorded = (*run.trainings("search"), *run.trainings("target"))
    is_lost = any(t.evaluation.reason in retried for t in recorded)
    if run.status != "finished" or is_short or is_lost:
        return None
    if run.is_exhausted:
        return _result(run, "exhausted", f"Run {run.name} is complete. {run.note}")
    message = (
        f"Run {run.name} is complete with {_generations(total)}; "
        f"`nas resume {run_argument(run.folder)} --gens N` with more of them goes on."
    )
    return _result(run, "finished", message)


def _result(run: Run, status: EndStatus, message: str) -> SearchResult:
    return SearchResult(
        run=run.name,
        folder=run.folder,
        status=status,
        generations_done=len(run.generations()),
        counts=run.counts(),
        hypervolume=run.hypervolume(run.front()),
        message=message,
    )


def _generations(number: int) -> str:
    return "1 generation" if number == 1 else f"{number} generations"
