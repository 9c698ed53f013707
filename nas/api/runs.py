"""Search, resume and confirm: the functions that write a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Unpack

from markupsafe import Markup

from nas.api.execution import Executing, execution_of, task_of
from nas.common.errors import NasError
from nas.common.search_config import SearchConfig
from nas.evaluation.execution import make_evaluator
from nas.report.confirmation import ConfirmResult, make_confirmation
from nas.report.front import Front
from nas.report.run_view import RunView
from nas.report.trials import TrainingRow
from nas.report.verdict import verdict_of
from nas.searching.confirm import confirm_run, plan_confirmation
from nas.searching.driver import resume_search, run_search
from nas.searching.listener import Listener, SearchResult
from nas.space import load_space
from nas.store import RUNS, find_run, open_run, open_writer


class NotebookResult(SearchResult):
    """The result of a search; a notebook shows the verdict and the front."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from nas.report.page.rendering import render

        try:
            with open_run(self.folder) as run:
                view = RunView.read(run)
        except NasError as error:
            return render("notebook.html", content="", about=f"{self.message} {error}")
        table = Markup(Front(view)._repr_html_())  # noqa: S704 - escaped
        return render("notebook.html", headline=verdict_of(view).headline, content=table)


def _displayed(result: SearchResult) -> NotebookResult:
    return NotebookResult(*(getattr(result, field.name) for field in fields(result)))


def search(
    space: str,
    *,
    generations: int = SearchConfig.generations,
    population: int = SearchConfig.population,
    task: str | None = None,
    data: str | None = None,
    algorithm: str = SearchConfig.algorithm,
    lag: int | None = SearchConfig.lag,
    seed: int = SearchConfig.seed,
    repeats: int = SearchConfig.repeats,
    run: str | None = None,
    runs: str | Path = RUNS,
    listener: Listener | None = None,
    command: str = "nas.search",
    **execution: Unpack[Executing],
) -> SearchResult:
    """Search a space for mechanisms; a run folder records every training.

    >>> result = nas.search("quickstart", generations=1, population=2, task="tiny.yaml",
    ...                     run="first", backend="local")
    >>> result.status, result.counts.evaluated
    ('finished', 2)

    Args:
        space: a search space, by name or path.
        generations: number of generations, the first one included.
        population: trainings of a generation.
        task: a task, by name or path; the space's by default.
        data: training data, as the task's family names them; the task's by default.
        algorithm: "surrogate", "nsga2", "random", "regularized-evolution", "local-search", or a
            plug-in's.
        lag: proposal t is computed from results up to t - lag, so that no worker waits for the
            last training of a generation; by default from whole generations.
        seed: the seed of the search; the seeds of trainings derive from it.
        repeats: trainings of each mechanism, each with a seed of its own.
        run: the run's name; by default date, space and seed.
        runs: the folder of runs.
        listener: receives events; see ``nas.searching.listener``.
        command: the command line, for the record.
        execution: options of the workers; see ``nas.api.execution.Executing``.

    Returns:
        How the run ended, its folder, counts and hypervolume.

    Raises:
        NasError: an argument cannot be used; the message names it and what was expected.
    """
    chosen = load_space(space)
    result = run_search(
        chosen,
        task_of(chosen, task, data),
        SearchConfig(
            algorithm=algorithm,
            population=population,
            generations=generations,
            seed=seed,
            repeats=repeats,
            lag=lag,
        ),
        make_evaluator=partial(make_evaluator, execution_of(execution)),
        root=Path(runs),
        name=run,
        command=command,
        listener=listener,
    )
    return _displayed(result)


def resume(
    run: str = "latest",
    *,
    generations: int | None = None,
    data: str | None = None,
    retry_failed: bool = False,
    runs: str | Path = RUNS,
    listener: Listener | None = None,
    command: str = "nas.resume",
    **execution: Unpack[Executing],
) -> SearchResult:
    """Continue an interrupted run, or add generations to a finished one.

    >>> nas.resume("first").status
    'finished'

    Args:
        run: a run's name or path, or "latest".
        generations: number of generations in all; as many as before by default.
        data: where the run's data are now, if they were moved; other data are refused.
        retry_failed: repeat all failed trainings, not those of lost workers alone.
        runs: the folder of runs.
        listener: receives events; see ``nas.searching.listener``.
        command: the command line, for the record.
        execution: options of the workers; see ``nas.api.execution.Executing``.

    Returns:
        How the run ended; at once if nothing is left to do.

    Raises:
        RunError: there is no such run, another process writes it, or its data have changed.
        NasError: another argument cannot be used.
    """
    result = resume_search(
        find_run(run, Path(runs)),
        make_evaluator=partial(make_evaluator, execution_of(execution)),
        generations=generations,
        data=data,
        retry_failed=retry_failed,
        listener=listener,
        command=command,
    )
    return _displayed(result)


def confirm(
    run: str = "latest",
    ids: Sequence[str] = (),
    *,
    members: int = 5,
    seeds: int = 5,
    long: str | None = None,
    test: bool = False,
    data: str | None = None,
    runs: str | Path = RUNS,
    on_training: Callable[[TrainingRow, int, int], None] | None = None,
    **execution: Unpack[Executing],
) -> ConfirmResult:
    """Train likely members of a run's front again with fresh seeds, beside standard attention.

    The run records these trainings; a repeated call trains only what is missing.

    >>> result = nas.confirm("first", members=1, seeds=2, backend="local")
    >>> [len(row.fresh["values"]) for row in result.members]
    [2, 2, 2]

    Args:
        run: a run's name or path, or "latest".
        ids: digests (or their beginnings) of mechanisms; by default they are chosen.
        members: number to choose: best, knee and cheapest, then those of the front that add most
            to their hypervolume. Standard attention and ``uniform`` are always trained.
        seeds: trainings of each, with the same seeds for all.
        long: another task of the same family and metric, by name or path, to train under as well.
        test: also train under the longest task and evaluate on its test set.
        data: where the run's data are now, if they were moved.
        runs: the folder of runs.
        on_training: called with each finished training, the number finished, and the total.
        execution: options of the workers; see ``nas.api.execution.Executing``.

    Raises:
        RunError: there is no such run, or nothing to confirm in it.
        ConfigError: ``long`` is of another family or does not measure the run's metric.
        NasError: another argument cannot be used.
    """
    chosen = execution_of(execution)
    with open_writer(find_run(run, Path(runs)), None) as writer:
        plan = plan_confirmation(
            writer.run,
            ids=ids,
            members=members,
            seeds=seeds,
            long=long,
            is_tested=test,
            data=data,
        )
        total = sum(map(len, plan.todo))
        trained = confirm_run(writer, plan, partial(make_evaluator, chosen))
        with closing(trained):  # stops the workers if ``on_training`` raises
            for done, (candidate, training) in enumerate(trained, 1):
                if on_training is not None:
                    name = f"{training.stage}: {training.name or candidate.digest[:8]}"
                    fields_ = (name, candidate.digest, training.repeat, training.evaluation)
                    row = TrainingRow(*fields_, costs=candidate.costs, metric=plan.metric)
                    on_training(row, done, total)
        return make_confirmation(writer.run, plan)
