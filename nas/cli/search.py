"""``nas search``: search a space for attention mechanisms."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import Address, Backend, Data, Gpus, Limit, Runs, Task, Wait, Workers


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
    from nas.cli.ending import command_line, show_end
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
            command=command_line(),
        )
    show_end(ended, runs)
