"""``nas resume``: go on with a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import Address, Backend, Data, Gpus, Limit, RunName, Runs, Wait, Workers


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
    from nas.cli.ending import command_line, show_end
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
            command=command_line(),
        )
    show_end(ended, runs)
