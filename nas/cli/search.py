"""``nas search``, ``resume``, ``evaluate``, ``benchmark``, ``confirm``: what trains."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli import completion
from nas.cli.app import StoppedError, app
from nas.cli.console import complain, note, output, print_json
from nas.cli.options import (
    AsJson,
    Data,
    EventFolder,
    OnTest,
    Policy,
    Record,
    RunName,
    Runs,
    Sources,
    Space,
    StudySeed,
    Task,
    pairs,
    trains,
)

if TYPE_CHECKING:
    from typing import Unpack

    from nas.api.execution import Executing
    from nas.report.trials import TrainingRow
    from nas.searching.listener import Ended


@app.command()
@trains
def search(
    space: Space,
    generations: Annotated[int, typer.Option("--gens", min=1, help="Generations.")] = 50,
    population: Annotated[
        int, typer.Option("--pop", min=1, help="Trainings that a generation asks for.")
    ] = 24,
    task: Task = None,
    data: Data = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the search and all trainings.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="Trainings of each mechanism.")] = 1,
    algorithm: Annotated[
        str,
        typer.Option(
            help="surrogate, nsga2, random, regularized-evolution, local-search, or a plug-in's."
        ),
    ] = "surrogate",
    lag: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Propose from all results but the last so many, not by whole generations.",
        ),
    ] = None,
    run: Annotated[str | None, typer.Option(help="The run's name.")] = None,
    runs: Runs = Path("runs"),
    tensorboard: EventFolder = None,
    **execution: Unpack[Executing],
) -> None:
    """Search a space for attention mechanisms."""
    from nas.api import runs as api
    from nas.cli.display import search_display

    with search_display(tensorboard) as listener:
        ended = api.search(
            space,
            generations=generations,
            population=population,
            task=task,
            data=data,
            algorithm=algorithm,
            lag=lag,
            seed=seed,
            repeats=repeats,
            run=run,
            runs=runs,
            listener=listener,
            command=shlex.join(["nas", *sys.argv[1:]]),
            **execution,
        )
    _show_end(ended, runs)


@app.command()
@trains
def resume(
    run: RunName = "latest",
    generations: Annotated[
        int | None, typer.Option("--gens", min=1, help="Generations in all.")
    ] = None,
    data: Data = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try all failed trainings again.")
    ] = False,
    runs: Runs = Path("runs"),
    tensorboard: EventFolder = None,
    **execution: Unpack[Executing],
) -> None:
    """Go on with a run that was stopped, or add generations to a finished one.

    --data says where its data are now, if they have moved; other data are refused.
    """
    from nas.api import runs as api
    from nas.cli.display import search_display

    with search_display(tensorboard) as listener:
        ended = api.resume(
            run,
            generations=generations,
            data=data,
            retry_failed=retry_failed,
            runs=runs,
            listener=listener,
            command=shlex.join(["nas", *sys.argv[1:]]),
            **execution,
        )
    _show_end(ended, runs)


def _show_end(ended: Ended, runs: Path) -> None:
    """The front, what to type next, and how the run ended."""
    from nas.report.front import show_front
    from nas.report.run_view import RunView
    from nas.report.table import say
    from nas.store import RUNS, open_run
    from nas.store.files import typed

    if ended.status == "interrupted":
        raise StoppedError(ended.message)
    console = output()
    with open_run(ended.folder) as run:
        view = RunView.read(run, ended.run if runs == RUNS else str(ended.folder))
    if view.members:
        show_front(console, view)
        say(console, "")
    say(console, ended.message)
    if view.members and view.metric is not None:
        where = typed(ended.folder)
        say(console, f"Next: `nas confirm {where}` trains its likely members with fresh seeds.")
    if not view.members:
        raise typer.Exit(1)


@app.command()
@trains
def evaluate(
    sources: Sources,
    task: Annotated[
        str, typer.Option(help="A task, by name or path.", autocompletion=completion.tasks)
    ] = "vit-cifar10",
    data: Data = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each, with other seeds.")] = 1,
    seed: StudySeed = 0,
    policy: Policy = "score_normalize_aggregate",
    record: Record = None,
    test: OnTest = False,
    as_json: AsJson = False,
    **execution: Unpack[Executing],
) -> None:
    """Train mechanisms under a task, with several seeds, without a search."""
    from nas.api import comparing
    from nas.report.trials import trial_line, trial_table

    result = comparing.evaluate(
        sources,
        task=task,
        data=data,
        seeds=seeds,
        seed=seed,
        policy=policy,
        record=record,
        test=test,
        on_training=lambda *training: note(trial_line(*training)),
        **execution,
    )
    if as_json:
        print_json(result.to_dict())
    else:
        trial_table(output(), result)
    if not result.is_ok:
        raise typer.Exit(1)


@app.command()
@trains
def benchmark(
    sources: Sources,
    against: Annotated[str, typer.Option(help="What all are compared with.")] = "mha",
    tasks: Annotated[
        str | None, typer.Option(help="Tasks by name or path, with commas; else six built-in ones.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="TASK=SPEC: what to train a task on; may be given several times."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each under each.")] = 5,
    seed: StudySeed = 0,
    policy: Policy = "score_normalize_aggregate",
    record: Record = None,
    test: OnTest = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the differences: .png, .svg or .pdf.")
    ] = None,
    as_json: AsJson = False,
    **execution: Unpack[Executing],
) -> None:
    """Train mechanisms under several tasks, on tokens and images, beside one of them.

    Differences are between trainings that share their seed; verdicts are corrected for their
    number.
    """
    from nas.api import comparing
    from nas.report.benchmark import benchmark_table
    from nas.report.benchmark_plot import draw_benchmark
    from nas.report.figure import check_picture, write_figure
    from nas.report.trials import trial_line

    if plot is not None:
        check_picture(plot)
    chosen = [name.strip() for name in tasks.split(",")] if tasks else comparing.TASKS

    def on_training(task: str, training: TrainingRow, done: int, total: int) -> None:
        note(f"{task}: {trial_line(training, done, total)}")

    save_errors: list[str] = []
    result = comparing.benchmark(
        sources,
        against=against,
        tasks=chosen,
        data=pairs(data or ()),
        seeds=seeds,
        seed=seed,
        policy=policy,
        record=record,
        test=test,
        on_training=on_training,
        on_save_error=save_errors.append,
        **execution,
    )
    if as_json:
        print_json(result.to_dict())
    else:
        benchmark_table(output(), result)
    for why in save_errors:
        complain(why)
    if plot is not None:
        write_figure(draw_benchmark(result), plot)
        note(f"{plot}: the differences as a picture.")
    if not result.is_ok:
        raise typer.Exit(1)


@app.command()
@trains
def confirm(
    run: RunName = "latest",
    ids: Annotated[
        list[str] | None, typer.Argument(help="Members by ID, in place of those chosen.")
    ] = None,
    members: Annotated[int, typer.Option(min=1, help="Members, spread over the front.")] = 5,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each, with fresh seeds.")] = 5,
    long: Annotated[
        str | None,
        typer.Option(
            help="A longer task to train them under as well.", autocompletion=completion.tasks
        ),
    ] = None,
    test: Annotated[
        bool, typer.Option("--test", help="Train them also to be judged on the test set.")
    ] = False,
    data: Data = None,
    runs: Runs = Path("runs"),
    as_json: AsJson = False,
    **execution: Unpack[Executing],
) -> None:
    """Train the likely members of a run's front again, with fresh seeds.

    Beside standard attention and the control uniform. The same command goes on where it was
    stopped. --data says where the run's data are now, if they have moved.
    """
    from nas.api import runs as api
    from nas.report.confirmation import confirmation_table
    from nas.report.trials import trial_line

    result = api.confirm(
        run,
        ids or (),
        members=members,
        seeds=seeds,
        long=long,
        test=test,
        data=data,
        runs=runs,
        on_training=lambda *training: note(trial_line(*training)),
        **execution,
    )
    if as_json:
        print_json(result.to_dict())
    else:
        confirmation_table(output(), result)
    if not result.is_ok:
        raise typer.Exit(1)
