"""``nas search`` and ``nas resume``: search a space, and go on with a run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nas.cli.app import app
from nas.cli.console import complain, output
from nas.cli.options import (
    Address,
    Backend,
    Data,
    Gpus,
    Limit,
    RunName,
    Runs,
    Task,
    Wait,
    Workers,
)

if TYPE_CHECKING:
    from nas.searching.listener import Ended


@app.command()
def search(
    space: Annotated[str, typer.Option(help="A search space, by name or path.")],
    generations: Annotated[int, typer.Option("--gens", min=1, help="Generations.")] = 50,
    population: Annotated[
        int, typer.Option("--pop", min=1, help="New mechanisms a generation.")
    ] = 50,
    task: Task = None,
    data: Data = None,
    workers: Workers = None,
    gpus_per_worker: Gpus = None,
    ray_address: Address = None,
    backend: Backend = "ray",
    seed: Annotated[int, typer.Option(min=0, help="Of the search and all trainings.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="Trainings of each mechanism.")] = 1,
    algorithm: Annotated[
        str, typer.Option(help="nsga2, random, regularized-evolution, or a plug-in's.")
    ] = "nsga2",
    lag: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Propose from all results but the last so many, not by whole generations.",
        ),
    ] = None,
    time_limit: Limit = 1800,
    start_seconds: Wait = 300,
    run: Annotated[str | None, typer.Option(help="The run's name.")] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Search a space for attention mechanisms."""
    _follow("search", locals())


@app.command()
def resume(
    run: RunName = "latest",
    generations: Annotated[
        int | None, typer.Option("--gens", min=1, help="Generations in all.")
    ] = None,
    data: Data = None,
    workers: Workers = None,
    gpus_per_worker: Gpus = None,
    ray_address: Address = None,
    backend: Backend = "ray",
    time_limit: Limit = 1800,
    start_seconds: Wait = 300,
    runs: Runs = Path("runs"),
) -> None:
    """Go on with a run that was stopped, or add generations to a finished one.

    --data says where its data are now, if they have moved; other data are refused.
    """
    _follow("resume", locals())


def _follow(function: str, options: dict[str, Any]) -> None:
    """Call a function of ``nas.api`` with a command's options, which have its arguments' names."""
    from nas import api
    from nas.cli.live import display

    command = shlex.join(["nas", *sys.argv[1:]])  # for the record
    with display() as listener:
        ended = getattr(api, function)(**options, listener=listener, command=command)
    _show_end(ended, options["runs"])


def _show_end(ended: Ended, runs: Path) -> None:
    """The front, what to type next, and how the run ended."""
    from nas.report.facts import gather
    from nas.report.front import show_front
    from nas.report.table import say
    from nas.store import RUNS, open_run

    if ended.status == "interrupted":
        complain(ended.message)
        raise typer.Exit(130)
    console = output()
    with open_run(ended.folder) as run:
        facts = gather(run)
    if facts.members:
        show_front(console, facts, ended.run if runs == RUNS else str(ended.folder))
        say(console, "")
    say(console, ended.message)
    if not facts.members:
        raise typer.Exit(1)
