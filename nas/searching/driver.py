"""Begin or resume a search.

After Ctrl-C, SIGTERM, an error or ``kill -9``, only the trainings that were running are lost.
Reference trainings for the limit of a metric precede the run: interrupted, they leave none.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from nas.common.errors import NasWarning
from nas.common.objectives import SearchConfig, check_count
from nas.common.text import plural
from nas.costs import need_calibration
from nas.evaluation.study import cost_context
from nas.evaluation.trainer import calibrate_for
from nas.evaluation.trial import Evaluator, is_retried
from nas.searching.algorithm import ALGORITHMS
from nas.searching.listener import EndStatus, Listener, SearchResult, Started
from nas.searching.loop import Loop
from nas.searching.proposing import MAX_ATTEMPTS
from nas.searching.setup import (
    MakeEvaluator,
    Tasks,
    check_measures,
    check_space,
    lag_of,
    make_objectives,
    relative_limits,
    run_proposer,
    starting_with,
    train_references,
)
from nas.space import SearchSpace
from nas.store import (
    RUNS,
    Document,
    Run,
    RunSetup,
    RunWriter,
    check_name,
    create_run,
    open_run,
    open_writer,
    this_session,
)
from nas.store.files import run_argument
from nas.store.frozen import frozen_space, frozen_task, load_frozen_task, load_unchanged
from nas.store.lock import locked
from nas.tasks.base import Data, Task


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

    If ``target``, a longer task (``target_task``), is given, its front is searched. See
    ``create_run`` for ``root`` and ``name``. NasError is raised if the algorithm is unknown, if the
    space, the task or the data cannot be used, or if the folder cannot be written.
    """
    ALGORITHMS[config.algorithm]  # refuse an unknown name before anything is loaded
    check_space(space, is_causal=task.main.is_causal)
    if name is not None:
        check_name(name, root)
    listener = listener or Listener()
    tasks = Tasks(task, task.load(), None if target is None else (target, target.load()))
    front, front_data = tasks.front
    metrics = front.metrics(front_data)
    limits = relative_limits(space, metrics)
    optimised = [metric.name for metric in metrics if metric.name in limits]
    limited = [name for name in optimised if limits[name] is not None]
    for metric in limited:
        check_measures(*tasks.scored, metric)
    evaluator = tasks.make(make_evaluator)
    try:
        _warn_of_idle_workers(config, evaluator.workers)
        calibration = (
            evaluator.measure(partial(calibrate_for, front)) if need_calibration(limits) else {}
        )
        trainings = []
        if limited:
            trainings = train_references(
                *tasks.scored, evaluator, seed=config.seed, on_reference=listener.on_reference
            )
        context, reference = cost_context(front, calibration, space.context), front.main.reference
        space_copy, policy_copy = frozen_space(starting_with(space, reference, context.is_causal))
        setup = RunSetup(
            # Without a metric nothing is trained.
            config=config if optimised else replace(config, repeats=1),
            space=space_copy,
            policy=policy_copy,
            task=frozen_task(task, tasks.data),
            objectives=make_objectives(limits, metrics, context, reference, trainings),
            metrics=tuple(metrics),
            calibration=calibration,
            target=None if target is None else frozen_task(*tasks.front),
        )
        session = this_session(command, workers=evaluator.workers)
        with create_run(root, setup, session, name=name) as writer:
            for training in trainings:
                writer.record_training(training, None)
            return _work(writer, tasks, evaluator, listener)
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

    If the run is complete, nothing is trained. A NasWarning says which versions of libraries or
    plug-ins differ from those of the last session. RunError is raised if there is no such run, if
    another process writes it, or if its data have changed. See ``nas.resume`` for the arguments.
    """
    if generations is not None:
        check_count("generations", generations)
    with open_run(folder) as run:
        setup, sessions, done = run.setup, run.sessions(), len(run.generations())
        wanted = max(setup.config.generations, generations or 0)
        complete = _result_if_complete(run, wanted, retry_failed)
    if complete is not None:
        open_writer(folder, None).close()  # moves the log of a killed process
        return complete
    if generations is not None and generations < wanted:
        warnings.warn(
            f"found {plural(generations, 'generation')}; {done} of {wanted} are done, and the run "
            f"goes on to {wanted}. A number above {wanted} extends it.",
            NasWarning,
            stacklevel=2,
        )
    with locked(folder):  # refuse a second process before anything is loaded
        pass
    loaded = _load(folder, setup.task, data)
    tasks = Tasks(*loaded, None if setup.target is None else _load(folder, setup.target, data))
    evaluator = tasks.make(make_evaluator)
    try:
        session = this_session(command, workers=evaluator.workers)
        _warn_of_changes(sessions[-1].versions, session.versions)
        with open_writer(folder, session) as writer:
            writer.raise_generations(wanted)
            return _work(writer, tasks, evaluator, listener or Listener(), retry_failed)
    finally:
        evaluator.close()


def _load(folder: Path, document: Document, data: str | None) -> tuple[Task, Data]:
    task = load_frozen_task(document, data)
    return task, load_unchanged(folder, document, task)


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
    listener: Listener,
    retry_failed: bool = False,
) -> SearchResult:
    """Search until the run ends, close the run, and return how the search ended."""
    run, setup = writer.run, writer.run.setup
    proposer = run_proposer(setup, tasks)
    done = sum(not is_retried(t.evaluation, retry_failed) for t in run.trainings())
    listener.on_start(Started(run.name, run.folder, setup, evaluator.workers, done))
    try:
        is_exhausted = Loop(writer, proposer, evaluator, listener, retry_failed=retry_failed).run()
    except (KeyboardInterrupt, SystemExit):  # Ray turns SIGTERM into SystemExit
        message = (
            f"Interrupted in generation {len(run.generations()) + 1}; every finished training is "
            f"kept. `nas resume {run_argument(run.folder)}` goes on."
        )
        result = _result(run, "interrupted", message)
    else:
        num_trained = run.counts().evaluated
        message = f"Done: {plural(len(run.generations()), 'generation')}, {num_trained} mechanisms."
        if is_exhausted:
            message = (
                f"The space is exhausted: {MAX_ATTEMPTS} attempts in a row gave no mechanism that "
                f"was new; {num_trained} were trained."
            )
        result = _result(run, "exhausted" if is_exhausted else "finished", message)
        writer.finish(message if is_exhausted else "")
    writer.close()
    listener.on_end(result)
    return result


def _result_if_complete(run: Run, generations: int, retry_failed: bool) -> SearchResult | None:
    """Return the result of a run of so many generations; None if something is left to train."""
    is_short = len(run.generations()) < generations and not run.is_exhausted
    is_incomplete = any(is_retried(t.evaluation, retry_failed) for t in run.trainings())
    if run.status != "finished" or is_short or is_incomplete:
        return None
    if run.is_exhausted:
        note = run.sessions()[-1].note
        return _result(run, "exhausted", f"Run {run.name} is complete. {note}")
    message = (
        f"Run {run.name} is complete with {plural(generations, 'generation')}; "
        f"`nas resume {run_argument(run.folder)} --gens N` with N above {generations} goes on."
    )
    return _result(run, "finished", message)


def _result(run: Run, status: EndStatus, message: str) -> SearchResult:
    num_done, volume = len(run.generations()), run.hypervolume(run.front())
    return SearchResult(run.name, run.folder, status, num_done, run.counts(), volume, message)
