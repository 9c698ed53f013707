"""``nas search``, ``nas resume`` and ``nas confirm``: commands that write a run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from nas.cli import options
from nas.cli.app import StoppedError, app
from nas.cli.console import note_training, output, print_result
from nas.common.config import named_files
from nas.common.errors import ConfigError
from nas.common.objectives import SearchConfig


@app.command()
@options.with_workers
def search(
    context: typer.Context,
    space: Annotated[
        str | None, typer.Option(help="A search space, by name or path.", show_default=False)
    ] = None,
    generations: Annotated[
        int, typer.Option("--gens", "--generations", min=1, help="Generations.")
    ] = (SearchConfig.generations),
    population: Annotated[
        int, typer.Option("--pop", "--population", min=1, help="Trainings of a generation.")
    ] = (SearchConfig.population),
    task: options.Task = None,
    target: Annotated[
        str | None, typer.Option(help="A longer task of the family, whose front is searched.")
    ] = None,
    data: options.Data = None,
    seed: options.StudySeed = SearchConfig.seed,
    repeats: options.Seeds = SearchConfig.repeats,
    algorithm: Annotated[
        str, typer.Option(help="surrogate, nsga2, random or regularized-evolution.")
    ] = SearchConfig.algorithm,
    lag: Annotated[
        int | None,
        typer.Option(min=1, help="Propose from all results but this many (surrogate: 16)."),
    ] = SearchConfig.lag,
    objectives: Annotated[
        Any,
        typer.Option(
            metavar="NAME,...",
            help="Metrics and costs to optimise, if not the space's.",
            parser=options.names,
        ),
    ] = None,
    region: Annotated[
        Any,
        typer.Option(
            metavar="NAME=LIMIT,...",
            help="Limits of the front, such as quality=0.7,time_ms=1.5; none for no limits.",
            parser=options.limits,
        ),
    ] = None,
    run: Annotated[str | None, typer.Option(help="The run's name.")] = None,
    runs: options.Runs = Path("runs"),
    track: options.Track = None,
    **execution: Any,
) -> None:
    """Search a space for attention mechanisms.

    A limit of --region is a share of the way from the plain mean to the task's reference for the
    quality, and a multiple of the reference's for a cost.
    """
    if space is None:
        names = ", ".join(named_files("search_spaces"))
        raise ConfigError(
            f"--space is missing; expected {names}, or a file. `nas spaces` describes them."
        )
    _run("search", context, runs)


@app.command()
@options.with_workers
def resume(
    context: typer.Context,
    run: options.RunName = "latest",
    generations: Annotated[
        int | None,
        typer.Option("--gens", "--generations", min=1, help="Total number of generations."),
    ] = None,
    data: options.Data = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Repeat all failed trainings.")
    ] = False,
    runs: options.Runs = Path("runs"),
    track: options.Track = None,
    **execution: Any,
) -> None:
    """Continue a stopped run, or add generations to a finished one.

    --data is the new place of the run's data, if they were moved; other data are refused.
    """
    _run("resume", context, runs)


@app.command()
@options.with_workers
def confirm(
    context: typer.Context,
    run: options.RunName = "latest",
    ids: Annotated[
        list[str] | None, typer.Argument(help="IDs of members; default: chosen by --members.")
    ] = None,
    members: Annotated[
        int, typer.Option(min=1, help="Number of members, spread over the front.")
    ] = 5,
    seeds: options.Seeds = 5,
    long: Annotated[
        str | None, typer.Option(help="Also train under this longer task of the family.")
    ] = None,
    test: Annotated[
        bool, typer.Option("--test", help="Also train for evaluation on the test set.")
    ] = False,
    data: options.Data = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Also train this mechanism, or FILE.py:CLASS, which is executed; compare with it.",
        ),
    ] = None,
    rates: options.Rates = None,
    runs: options.Runs = Path("runs"),
    as_json: options.AsJson = False,
    **execution: Any,
) -> None:
    """Train mechanisms of a run's front again, with fresh seeds.

    Standard attention, and `uniform`, which averages all tokens, are trained with the same seeds.
    The same command continues after an interrupt. --data is the new place of the run's data, if
    they were moved.
    """
    from nas.api import runs as api
    from nas.report.comparison_table import comparison_table

    result = api.confirm(**options.arguments(context, "as_json"), on_training=note_training)
    print_result(result, comparison_table, as_json)


def _run(function: str, context: typer.Context, runs: Path) -> None:
    """Search or resume; print the front, how it ended, and the command that confirms the front."""
    from nas.api import runs as api
    from nas.report.display import display
    from nas.report.front import show_front
    from nas.report.run_view import RunView
    from nas.report.table import say
    from nas.store import RUNS, open_run
    from nas.store.files import run_argument

    console, command = output(), shlex.join(["nas", *sys.argv[1:]])
    with display(console) as listener:
        search_or_resume = getattr(api, function)
        result = search_or_resume(**options.arguments(context), listener=listener, command=command)
    if result.status == "interrupted":
        raise StoppedError(result.message)
    with open_run(result.folder) as run:
        view = RunView.read(run, result.run if runs == RUNS else str(result.folder))
    if view.candidates:
        show_front(console, view)
        say(console, "")
    say(console, result.message)
    if view.members and view.metric is not None:
        where = run_argument(result.folder)
        say(console, f"Next: `nas confirm {where}` trains its likely members with fresh seeds.")
    if not view.members:
        raise typer.Exit(1)
