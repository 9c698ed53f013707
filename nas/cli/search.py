"""``nas search`` and ``nas resume``: search a space, and go on with a run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    gens: Annotated[int, typer.Option(min=1, help="Generations.")] = 50,
    pop: Annotated[int, typer.Option(min=1, help="New mechanisms a generation.")] = 50,
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
    from nas import api
    from nas.cli.live import display

    with display() as listener:
        ended = api.search(
            space,
            generations=gens,
            population=pop,
            task=task,
            data=data,
            algorithm=algorithm,
            lag=lag,
            seed=seed,
            repeats=repeats,
            run=run,
            runs=runs,
            backend=backend,
            workers=workers,
            gpus_per_worker=gpus_per_worker,
            ray_address=ray_address,
            time_limit=time_limit,
            start_seconds=start_seconds,
            listener=listener,
            command=_command_line(),
        )
    _show_end(ended, runs)


@app.command()
def resume(
    run: RunName = "latest",
    gens: Annotated[int | None, typer.Option(min=1, help="Generations in all.")] = None,
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
    from nas import api
    from nas.cli.live import display

    with display() as listener:
        ended = api.resume(
            run,
            generations=gens,
            data=data,
            runs=runs,
            backend=backend,
            workers=workers,
            gpus_per_worker=gpus_per_worker,
            ray_address=ray_address,
            time_limit=time_limit,
            start_seconds=start_seconds,
            listener=listener,
            command=_command_line(),
        )
    _show_end(ended, runs)


def _command_line() -> str:
    """What a person typed, for the record."""
    return shlex.join(["nas", *sys.argv[1:]])


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
