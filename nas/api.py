"""What a program calls: search, resume, evaluate. The command line calls the same functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.compiler import make_plan
from nas.errors import ConfigError, ViolationError
from nas.evaluation.backends import make_evaluator
from nas.evaluation.journal import JournaledEvaluator
from nas.evaluation.study import Trial, study
from nas.search.driver import resume_search, run_search
from nas.search.setup import Settings, check_count
from nas.sources import resolve
from nas.space import load_space
from nas.store import RUNS, find_run
from nas.tasks import load_images, load_task
from nas.validation import load_policy, validate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nas.evaluation.record import Evaluator
    from nas.genome import Genome
    from nas.search.listener import Ended, Listener
    from nas.sources import Source
    from nas.space import SearchSpace
    from nas.tasks import ImageData, Task
    from nas.validation import Policy

TIME_LIMIT: Final = 1800.0


def search(
    space: str,
    *,
    generations: int = 50,
    population: int = 50,
    task: str | None = None,
    data: str | None = None,
    algorithm: str = "nsga2",
    seed: int = 0,
    repeats: int = 1,
    run: str | None = None,
    runs: str | Path = RUNS,
    backend: str = "ray",
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    ray_address: str | None = None,
    time_limit: float | None = TIME_LIMIT,
    listener: Listener | None = None,
    command: str = "nas.search",
) -> Ended:
    """Search a space for mechanisms; returns how the run ended and where its folder is.

    Args:
        space: a search space, by name or path.
        task: a task, by name or path; the space's own by default.
        data: ``cifar10``, ``digits`` or ``imagefolder:PATH``; the space's own by default.
        algorithm: ``nsga2``, ``random`` or ``regularized-evolution``.
        repeats: trainings of each mechanism, each with its own seed.
        run: the run's name; by default date, space and seed.
        runs: the folder that the run's folder goes into.
        backend: ``ray``, or ``local`` for this process alone.
        workers: trainings at once; by default one a core.
        time_limit: seconds that one training may take; None for no limit, so that one that
            hangs is never ended.

    Raises:
        NasError: something given cannot be used; the message says what and why.
    """
    chosen = load_space(space)
    settings = Settings(algorithm, population, generations, seed, repeats)
    make = _evaluator_maker(backend, workers, gpus_per_worker, ray_address, time_limit)
    return run_search(
        chosen,
        task_of(chosen, task, data),
        settings,
        make_evaluator=make,
        root=Path(runs),
        name=run,
        command=command,
        listener=listener,
    )


def resume(
    run: str = "latest",
    *,
    generations: int | None = None,
    runs: str | Path = RUNS,
    backend: str = "ray",
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    ray_address: str | None = None,
    time_limit: float | None = TIME_LIMIT,
    listener: Listener | None = None,
    command: str = "nas.resume",
) -> Ended:
    """Go on with a run, or add generations to it; arguments as for ``search``."""
    return resume_search(
        find_run(run, Path(runs)),
        make_evaluator=_evaluator_maker(backend, workers, gpus_per_worker, ray_address, time_limit),
        generations=generations,
        listener=listener,
        command=command,
    )


def evaluate(
    sources: Sequence[str],
    *,
    task: str = "vit-cifar10",
    data: str | None = None,
    overrides: dict[str, Any] | None = None,
    seeds: int = 1,
    seed: int = 0,
    policy: str = "score_normalize_aggregate",
    record: str | Path | None = None,
    runs: str | Path = RUNS,
    backend: str = "ray",
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    ray_address: str | None = None,
    time_limit: float | None = TIME_LIMIT,
) -> Iterator[Trial]:
    """Train mechanisms without a search; trials come as they finish.

    Args:
        sources: SOURCE strings; see ``nas.sources``.
        overrides: fields of the task to set.
        seeds: trainings of each.
        policy: what genomes must obey; members of a run have passed that run's own.
        record: a file that every finished training is written to; those that it holds already
            are not repeated.

    Raises:
        ViolationError: a genome is not legal.
        NasError: something given cannot be used; the message says what and why.
    """
    check_count("seeds", seeds)
    rules = load_policy(policy)
    resolved = [resolve(source, Path(runs)) for source in dict.fromkeys(sources)]
    for one in resolved:
        _check_legal(one, rules)
    chosen = load_task(task, data=data, overrides=overrides)
    images = load_images(chosen.data, chosen)
    make = _evaluator_maker(backend, workers, gpus_per_worker, ray_address, time_limit)
    named = [(source.text, source.genome) for source in resolved]
    return _trials(named, chosen, images, make, seeds, seed, record)


def _trials(
    named: Sequence[tuple[str, Genome]],
    task: Task,
    images: ImageData,
    make: Callable[[Task, ImageData], Evaluator],
    seeds: int,
    seed: int,
    record: str | Path | None,
) -> Iterator[Trial]:
    """The trials of a study; workers are there while somebody iterates."""
    evaluator = make(task, images)
    try:
        if record is not None:
            evaluator = JournaledEvaluator(evaluator, Path(record), task, images)
        evaluator.use(evaluator.choose(seeds))
        yield from study(named, task, evaluator, repeats=seeds, seed=seed)
    finally:
        evaluator.close()


def _check_legal(source: Source, policy: Policy) -> None:
    """Refuse to train what no policy has passed; what types forbid, no policy allows."""
    make_plan(source.genome)
    violations = () if source.run is not None else validate(source.genome, policy)
    if violations:
        raise ViolationError(
            f"{source.text} is not legal under {policy.name}: {violations[0].message}", violations
        )


def task_of(space: SearchSpace, task: str | None, data: str | None) -> Task:
    """The task that a space names, or another one; a task of its own choice drops its overrides."""
    if task is not None:
        return load_task(task, data=data)
    own = space.task
    return load_task(own.name, data=data or own.data, overrides=own.overrides)


def _evaluator_maker(
    backend: str,
    workers: int | None,
    gpus_per_worker: float | None,
    ray_address: str | None,
    time_limit: float | None,
) -> Callable[[Task, ImageData], Evaluator]:
    for name, value in (("workers", workers), ("time-limit", time_limit)):
        if value is not None and not value > 0:  # NaN is not above 0 either
            raise ConfigError(f"{name}: found {value}; expected a number above 0.")

    def make(task: Task, data: ImageData) -> Evaluator:
        return make_evaluator(
            backend,
            task,
            data,
            workers=workers,
            gpus_per_worker=gpus_per_worker,
            ray_address=ray_address,
            time_limit=time_limit,
        )

    return make
