"""Begin a search, or go on with one: what ``nas search``, ``nas resume`` and ``nas.search`` call.

The caller brings space, task and the way to make an evaluator, and listens. Whatever happens, the
record is whole: Ctrl-C, an error or ``kill -9`` lose only the trainings that were under way.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeAlias

from nas.costs import backbone_cost
from nas.errors import RunError
from nas.evaluation.choices import Choices
from nas.evaluation.record import Job, training_seed
from nas.mechanisms import mechanism
from nas.search.front_file import write_front
from nas.search.listener import Silent, Started
from nas.search.loop import Loop
from nas.search.outcome import complete, ended
from nas.search.setup import (
    as_text,
    check_count,
    check_space,
    from_text,
    frozen_algorithm,
    make_setup,
)
from nas.store import RUNS, Document, check_name, create_run, open_run, open_writer, this_session
from nas.store.lock import acquire
from nas.tasks import Task, load_images

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from nas.evaluation.record import Evaluator
    from nas.search.algorithm import Algorithm
    from nas.search.listener import Ended, Listener
    from nas.search.setup import Settings
    from nas.space import SearchSpace
    from nas.store import RunSetup, RunWriter
    from nas.tasks import ImageData

    MakeEvaluator: TypeAlias = Callable[[Task, ImageData], Evaluator]


def run_search(
    space: SearchSpace,
    task: Task,
    settings: Settings,
    *,
    make_evaluator: MakeEvaluator,
    root: Path = RUNS,
    name: str | None = None,
    command: str = "nas.search",
    processor: str | None = None,
    listener: Listener | None = None,
) -> Ended:
    """Begin a run and do it to its end, or until Ctrl-C.

    Args:
        make_evaluator: called once, with the task and its data; the evaluator is closed here.
        root, name: where the run's folder goes, and how it is called; see ``create_run``.
        command: what a person typed, for the record.
        processor: what trains, where it is not this machine's processor.

    Raises:
        NasError: space, task or data cannot be used, or the folder cannot be written.
    """
    check_space(space)
    if name is not None:
        check_name(name, root)
    data = load_images(task.data, task)
    frozen = Document(task.name, as_text(task), fingerprint(task, data))
    evaluator = make_evaluator(task, data)
    try:
        choices = evaluator.choose(settings.repeats)
        evaluator.use(choices)
        mha = reference_costs(task, space.objectives, evaluator, settings.seed)
        setup = make_setup(
            space,
            frozen,
            settings,
            num_classes=data.num_classes,
            mha=mha,
            choices=choices.to_dict(),
        )
        algorithm = _algorithm(setup, task)
        session = this_session(command, workers=evaluator.workers, processor=processor)
        with create_run(root, setup, session, name=name) as writer:
            return _work(writer, algorithm, evaluator, listener or Silent())
    finally:
        evaluator.close()


def resume_search(
    folder: Path,
    *,
    make_evaluator: MakeEvaluator,
    generations: int | None = None,
    command: str = "nas resume",
    processor: str | None = None,
    listener: Listener | None = None,
) -> Ended:
    """Go on with a run from its folder alone.

    Args:
        generations: how many the run shall have in all; by default what it was begun with.

    Returns:
        How it ended; at once if nothing is left to do.

    Raises:
        RunError: there is no such run, another process writes it, its data have changed, or what
            is proposed now differs from the record.
    """
    if generations is not None:
        check_count("generations", generations)
    with open_run(folder) as run:
        done = complete(run, generations)
        setup = run.setup
    if done is not None:
        return done
    acquire(folder).release()  # a second process is refused before it loads anything
    task = from_text(setup.task, Task)
    data = load_images(task.data, task)
    _check_unchanged(folder, setup, task, data)
    algorithm = _algorithm(setup, task)
    choices = Choices.from_dict(setup.choices) if setup.choices else None
    evaluator = make_evaluator(task, data)
    try:
        if choices is not None:
            evaluator.use(choices)
        session = this_session(command, workers=evaluator.workers, processor=processor)
        with open_writer(folder, session) as writer:
            writer.raise_generations(generations or setup.generations)
            return _work(writer, algorithm, evaluator, listener or Silent())
    finally:
        evaluator.close()


def reference_costs(
    task: Task, names: Sequence[str], evaluator: Evaluator, seed: int
) -> Mapping[str, float]:
    """What standard attention costs under a task, in each objective that is minimised.

    Latency is measured where candidates are: by training standard attention once. All other costs
    are counted.

    Raises:
        RunError: that training failed.
    """
    genome = mechanism("mha").genome
    dim, heads, depth, tokens = task.sizes
    counted = backbone_cost(
        genome, dim=dim, heads=heads, depth=depth, tokens=tokens, qkv_bias=task.qkv_bias
    )
    costs = {name: float(value) for name, value in counted.items()}
    if "latency_ms" in names:
        job = Job("reference", genome, training_seed(seed, "reference", 0))
        ((_, evaluation),) = evaluator.run([job])
        if not evaluation.is_ok:
            raise RunError(
                f"standard attention, whose latency is the run's reference, cannot be trained "
                f"({evaluation.reason}: {evaluation.error}). Try it with `nas evaluate mha`."
            )
        costs["latency_ms"] = evaluation.objectives["latency_ms"]
    return costs


def fingerprint(task: Task, data: ImageData) -> str:
    """A digest of all that changes a result: the task and the images themselves."""
    return hashlib.sha256(f"{task.fingerprint()}|{data.digest}".encode()).hexdigest()[:16]


def _algorithm(setup: RunSetup, task: Task) -> Algorithm:
    return frozen_algorithm(setup, dim=task.width, heads=task.heads, depth=task.depth)


def _work(
    writer: RunWriter, algorithm: Algorithm, evaluator: Evaluator, listener: Listener
) -> Ended:
    """Do what there is to do, close the run, and say how it ended."""
    run = writer.run
    num_recorded = len(run.outcomes())
    listener.on_start(Started(run.name, run.folder, run.setup, evaluator.workers, num_recorded))
    try:
        is_exhausted = Loop(writer, algorithm, evaluator, listener).run()
    except KeyboardInterrupt:
        event = ended(run, "interrupted")
    else:
        event = ended(run, "exhausted" if is_exhausted else "finished")
        writer.finish(event.message if is_exhausted else "")
    write_front(run)
    writer.close()
    listener.on_end(event)
    return event


def _check_unchanged(folder: Path, setup: RunSetup, task: Task, data: ImageData) -> None:
    found = fingerprint(task, data)
    if found != setup.task.fingerprint:
        raise RunError(
            f"{folder}: task {task.name!r} with the data {task.data} now has the fingerprint "
            f"{found}, but the run was begun with {setup.task.fingerprint}: images or recipe have "
            "changed, and results would not be comparable. Restore them, or start a new run."
        )
