"""``nas.search``, ``nas.resume`` and ``nas.confirm``: the functions that write a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Unpack

from nas.api.execution import Executing, task_of
from nas.common.arguments import public
from nas.common.objectives import SearchConfig
from nas.evaluation.execution import Execution, make_evaluator
from nas.evaluation.trial import NOT_RECORDED
from nas.genome import Genome
from nas.report.comparison import Comparison, TrainingRow
from nas.report.confirmation import make_confirmation, training_row
from nas.report.display import shown_by_default
from nas.report.trackers import Tracker
from nas.searching.confirm import confirm_run, plan_confirmation
from nas.searching.driver import resume_search, run_search
from nas.searching.listener import CompositeListener, Listener, SearchResult
from nas.searching.setup import target_task
from nas.space import load_space
from nas.store import RUNS, find_run, open_writer
from nas.store.sources import resolve


@public
def search(
    space: str,
    *,
    generations: int = SearchConfig.generations,
    population: int = SearchConfig.population,
    task: str | None = None,
    target: str | None = None,
    data: str | None = None,
    algorithm: str = SearchConfig.algorithm,
    lag: int | None = SearchConfig.lag,
    seed: int = SearchConfig.seed,
    repeats: int = SearchConfig.repeats,
    objectives: Sequence[str] | None = None,
    region: Mapping[str, float] | None = None,
    run: str | None = None,
    runs: str | Path = RUNS,
    listener: Listener | None = None,
    track: str | None = None,
    command: str = "nas.search",
    **execution: Unpack[Executing],
) -> SearchResult:
    """Search a space for mechanisms; a run folder records every training.

    Examples:
        >>> result = nas.search("quickstart", generations=1, population=2, task="tiny.yaml",
        ...                     run="first", backend="local")
        >>> result.status, result.counts.evaluated
        ('finished', 2)

    Args:
        space: name or path of a search space.
        generations: number of generations, including the first.
        population: number of proposals in a generation.
        task: name or path of a task; by default that of the space, with its data.
        target: name or path of a longer task of the same family, whose front is searched; some of
            the mechanisms are trained under it. By default that of the space, which may have none.
        algorithm: "surrogate", "nsga2", "random", "regularized-evolution", or that of a plug-in.
        lag: if set, the proposal with number t uses the trainings up to number t - lag, so that no
            worker waits for the last training of a generation. By default 16 for "surrogate", or
            a generation if that is less; with others, proposals use whole generations.
        repeats: number of trainings of each mechanism, each with its own seed.
        objectives: metrics and costs to optimise; by default those of the space.
        region: limits of a mechanism in the front, by objective; by default those of the space. The
            limit of a metric is a share of the way from the plain mean (0) to the task's reference
            (1), such as ``{"quality": 0.7}``; the limit of a cost is a multiple of the reference's
            cost, such as ``{"time_ms": 1.5}``.
        run: name of the run; by default date, space and seed.
        Others: see ``nas.api.execution``.
    """
    chosen = load_space(space).asked(objectives, region)
    short, name = task_of(chosen, task, data), target or chosen.target
    config = SearchConfig(algorithm, population, generations, seed, repeats, lag)
    with _listening(listener, track) as shown:
        return run_search(
            chosen,
            short,
            config,
            target=None if name is None else target_task(name, short),
            make_evaluator=partial(make_evaluator, Execution(**execution)),
            root=Path(runs),
            name=run,
            command=command,
            listener=shown,
        )


@public
def resume(
    run: str = "latest",
    *,
    generations: int | None = None,
    data: str | None = None,
    retry_failed: bool = False,
    runs: str | Path = RUNS,
    listener: Listener | None = None,
    track: str | None = None,
    command: str = "nas.resume",
    **execution: Unpack[Executing],
) -> SearchResult:
    """Continue an interrupted run, or add generations to a finished run.

    Examples:
        >>> nas.resume("first").status
        'finished'

    Args:
        generations: total number of generations; the run's number by default.
        retry_failed: whether to repeat all failed trainings. By default only trainings that failed
            because a worker was lost are repeated.
        Others: see ``nas.api.execution``.

    Raises:
        RunError: there is no such run, another process writes it, or its data have changed.
    """
    with _listening(listener, track) as shown:
        return resume_search(
            find_run(run, Path(runs)),
            make_evaluator=partial(make_evaluator, Execution(**execution)),
            generations=generations,
            data=data,
            retry_failed=retry_failed,
            listener=shown,
            command=command,
        )


@public
def confirm(
    run: str = "latest",
    ids: Sequence[str] = (),
    *,
    members: int = 5,
    seeds: int = 5,
    long: str | None = None,
    test: bool = False,
    data: str | None = None,
    against: str | Path | Genome | None = None,
    rates: bool | None = None,
    runs: str | Path = RUNS,
    on_training: Callable[[TrainingRow, int, int], None] | None = None,
    **execution: Unpack[Executing],
) -> Comparison:
    """Train mechanisms of a run's front again with fresh seeds, and compare them.

    Fresh seeds are seeds that the search never used. The parts of the comparison are "fresh" under
    the run's task, "long" under a longer task, and "test" on the test set. The run stores the
    trainings; a repeated call trains only what is missing.

    Examples:
        >>> result = nas.confirm("first", members=1, seeds=2, backend="local")
        >>> [row.parts["fresh"].seeds for row in result.rows]
        [2, 2, 2]

    Args:
        ids: digests of mechanisms, or their first characters.
        members: without ``ids``, the number of mechanisms chosen from the front: best, best
            compromise and cheapest, then those that add most to the hypervolume of the chosen ones.
            The task's reference and ``uniform`` are always trained.
        long: name or path of another task of the same family and metric, under which the mechanisms
            are trained as well.
        test: whether to train also for an evaluation on the test set, under ``long`` if given.
        Others: see ``nas.api.execution``.

    Raises:
        RunError: there is no such run, or it has no mechanism to confirm.
        ConfigError: ``long`` is of another family or does not measure the run's metric.
    """
    options = Execution(**execution)
    with open_writer(find_run(run, Path(runs)), None) as writer:
        plan = plan_confirmation(
            writer.run,
            ids=ids,
            members=members,
            seeds=seeds,
            long=long,
            is_tested=test,
            data=data,
            against=None if against is None else resolve(against, Path(runs)),
            rates=rates,
            time_limit=options.time_limit,
        )
        trained = confirm_run(writer, plan, partial(make_evaluator, options))
        with closing(trained):  # stops the workers if ``on_training`` raises
            for done, (stage, mechanism, training) in enumerate(trained, 1):
                if on_training is not None and training.recorded == NOT_RECORDED:
                    row = training_row(plan, stage, mechanism, training)
                    on_training(row, done, plan.total)
        return make_confirmation(writer.run, plan)


@contextmanager
def _listening(listener: Listener | None, track: str | None) -> Iterator[Listener]:
    tracker = Listener() if track is None else Tracker(track)
    with shown_by_default(listener) as shown:
        yield CompositeListener(shown, tracker)
