"""Begin a search, or go on with one: what ``nas search``, ``nas resume`` and ``nas.search`` call.

The caller brings space, task and the way to make an evaluator, and listens. Whatever happens, the
record is whole: Ctrl-C, an error or ``kill -9`` lose only the trainings that were under way.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeAlias

from nas.config import dump_yaml, parse_yaml
from nas.errors import RunError
from nas.mechanisms import mechanism
from nas.searching.costing import TIME, Costing, canonicalise
from nas.searching.front_file import mend_front, write_front
from nas.searching.listener import Silent, Started
from nas.searching.loop import Loop
from nas.searching.outcome import complete, ended
from nas.searching.setup import (
    check_count,
    check_space,
    frozen_space,
    make_objectives,
    make_proposer,
    objective_names,
)
from nas.store import (
    RUNS,
    Document,
    RunSetup,
    check_name,
    create_run,
    fold_log,
    open_run,
    open_writer,
    this_session,
)
from nas.store.lock import acquire

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nas.evaluation.trial import Evaluator
    from nas.searching.listener import Ended, Listener
    from nas.searching.setup import Settings
    from nas.space import SearchSpace
    from nas.store import RunWriter
    from nas.tasks.base import Data, Task

    MakeEvaluator: TypeAlias = Callable[[Task, Data], Evaluator]


def run_search(
    space: SearchSpace,
    task: Task,
    settings: Settings,
    *,
    make_evaluator: MakeEvaluator,
    root: Path = RUNS,
    name: str | None = None,
    command: str = "nas.search",
    hardware: str | None = None,
    listener: Listener | None = None,
) -> Ended:
    """Begin a run and do it to its end, or until Ctrl-C.

    Args:
        make_evaluator: called once, with the task and its data; the evaluator is closed here.
        root, name: where the run's folder goes, and how it is called; see ``create_run``.
        command: what a person typed, for the record.
        hardware: what trains, where it is not this machine's processor.

    Raises:
        NasError: space, task or data cannot be used, or the folder cannot be written.
    """
    check_space(space, is_causal=task.is_causal)
    if name is not None:
        check_name(name, root)
    data = task.load()
    names = objective_names(space, task.metrics(data))
    evaluator = make_evaluator(task, data)
    try:
        setup = make_setup(space, task, data, settings, evaluator=evaluator, names=names)
        session = this_session(command, workers=evaluator.workers, hardware=hardware)
        with create_run(root, setup, session, name=name) as writer:
            return _work(writer, task, evaluator, listener or Silent())
    finally:
        evaluator.close()


def resume_search(
    folder: Path,
    *,
    make_evaluator: MakeEvaluator,
    generations: int | None = None,
    data: str | None = None,
    command: str = "nas resume",
    hardware: str | None = None,
    listener: Listener | None = None,
) -> Ended:
    """Go on with a run from its folder alone; trainings that lost workers took along come again.

    Args:
        generations: how many the run shall have in all; by default what it was begun with.
        data: where the data are now; they must be the same.

    Returns:
        How it ended; at once if nothing is left to do, with the log folded and front.json right.

    Raises:
        RunError: there is no such run, another process writes it, or its data have changed.
    """
    if generations is not None:
        check_count("generations", generations)
    with open_run(folder) as run:
        done = complete(run, generations)
        setup = run.setup
    if done is not None:
        _mend(folder)
        return done
    acquire(folder).release()  # a second process is refused before it loads anything
    task = thawed_task(setup.task, data)
    loaded = task.load()
    _check_unchanged(folder, setup, task, loaded)
    evaluator = make_evaluator(task, loaded)
    try:
        session = this_session(command, workers=evaluator.workers, hardware=hardware)
        with open_writer(folder, session) as writer:
            writer.raise_generations(generations or setup.generations)
            return _work(writer, task, evaluator, listener or Silent())
    finally:
        evaluator.close()


def make_setup(
    space: SearchSpace,
    task: Task,
    data: Data,
    settings: Settings,
    *,
    evaluator: Evaluator,
    names: tuple[str, ...],
) -> RunSetup:
    """Freeze all that decides what a run finds; unit times are measured where one is asked for."""
    metrics = task.metrics(data)
    calibration = evaluator.calibrate() if TIME in names else {}
    mha = canonicalise(mechanism("mha").genome, task.sizes)
    objectives = make_objectives(names, metrics, Costing.of(task, names, calibration)(mha))
    space_copy, policy_copy = frozen_space(space)
    return RunSetup(
        seed=settings.seed,
        space=space_copy,
        policy=policy_copy,
        task=frozen_task(task, data),
        algorithm=settings.algorithm,
        population=settings.population,
        generations=settings.generations,
        # Costs are the same every time.
        repeats=settings.repeats if any(o.is_metric for o in objectives) else 1,
        objectives=objectives,
        lag=settings.lag,
        calibration=calibration,
    )


def frozen_task(task: Task, data: Data) -> Document:
    """A task as a run keeps it, with a fingerprint of recipe and data, these by content."""
    text = dump_yaml(task.to_dict())
    digest = hashlib.sha256(f"{task.fingerprint()}|{data.digest}".encode()).hexdigest()[:16]
    return Document(task.name, text, digest)


def thawed_task(document: Document, data: str | None = None) -> Task:
    """What ``frozen_task`` wrote; with ``data``, its data come from there.

    Raises:
        ConfigError: this version of nas reads it differently; names the place.
    """
    from nas.tasks import parse_task

    where = f"the run's copy of {document.name}"
    fields = parse_yaml(document.text, where)
    return parse_task(fields if data is None else {**fields, "data": data}, where)


def _work(writer: RunWriter, task: Task, evaluator: Evaluator, listener: Listener) -> Ended:
    """Do what there is to do, close the run, and say how it ended."""
    run = writer.run
    setup = run.setup
    costs = Costing.of(task, [o.name for o in setup.objectives], setup.calibration)
    proposer = make_proposer(setup, task.sizes, costs, is_causal=task.is_causal)
    listener.on_start(Started(run.name, run.folder, setup, evaluator.workers, len(run.ended())))
    try:
        is_exhausted = Loop(writer, proposer, evaluator, listener).run()
    except KeyboardInterrupt:
        event = ended(run, "interrupted")
    else:
        event = ended(run, "exhausted" if is_exhausted else "finished")
        writer.finish(event.message if is_exhausted else "")
    write_front(run)
    writer.close()
    listener.on_end(event)
    return event


def _mend(folder: Path) -> None:
    """Do what a process may have left undone that was killed at the very end."""
    fold_log(folder)
    with open_run(folder) as run:
        mend_front(run)


def _check_unchanged(folder: Path, setup: RunSetup, task: Task, data: Data) -> None:
    found = frozen_task(task, data).fingerprint
    if found != setup.task.fingerprint:
        raise RunError(
            f"{folder}: task {task.name!r} with the data {task.data} now has the fingerprint "
            f"{found}, but the run was begun with {setup.task.fingerprint}: data or recipe have "
            "changed, and results would not be comparable. Restore them, say where the data are "
            "now, or start a new run."
        )
