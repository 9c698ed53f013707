"""``nas watch`` and ``nas tensorboard``: looking at a run while it goes on."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.console import complain, note, output, tell
from nas.cli.options import RunName, Runs


@app.command()
def watch(
    run: RunName = "latest",
    web: Annotated[
        bool, typer.Option("--web", help="Serve the page of `nas report`, to this machine alone.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="With --web; 0 takes one that is free.")
    ] = 0,
    runs: Runs = Path("runs"),
) -> None:
    """Watch a run that another process writes, until it ends.

    Reads its record alone and never holds it up. Exit status 1 if the run was stopped or its writer
    is gone.
    """
    from nas.store import RUNS, find_run

    folder = find_run(run, runs)
    label = run if runs == RUNS else str(folder)
    if web:
        _serve(folder, label, port)
    else:
        _watch(folder, label)


@app.command()
def tensorboard(
    run: RunName,
    folder: Annotated[Path, typer.Argument(help="A folder for TensorBoard; made if missing.")],
    runs: Runs = Path("runs"),
) -> None:
    """Write a run as event files for TensorBoard.

    Hypervolume, best estimate, front and failures over trainings; curves and costs of the front.
    The same command adds what came since; `nas search --tensorboard DIR` does it as it goes.
    """
    from nas.report.events import write_events
    from nas.store import find_run

    where, written = write_events(find_run(run, runs), folder)
    note(f"{where}: {written} event files written; `tensorboard --logdir {folder}` shows them.")


def _watch(folder: Path, label: str) -> None:
    from nas.cli.display import display, follow, why_stopped
    from nas.cli.progress import change_line
    from nas.report.front import no_front, show_front
    from nas.report.run_view import RunView
    from nas.report.table import say
    from nas.store import open_run

    console = output()
    with display(console, is_watching=True) as shown:
        status = follow(folder, shown)
    with open_run(folder) as run:
        if status != "finished":
            if shown.is_panel and shown.progress:  # a pipe has this line already
                say(console, change_line(shown.progress, time.time()))
            complain(why_stopped(run))
            raise typer.Exit(1)
        view = RunView.read(run, label)
    if view.members:
        show_front(console, view)
    else:
        complain(no_front(view))
        raise typer.Exit(1)


def _serve(folder: Path, label: str, port: int) -> None:
    from nas.report.page.serving import PageServer

    with PageServer(folder, label, port) as server:
        note("Ctrl-C ends it. Whoever has this address can read the run:")
        tell(server.url)
        sys.stdout.flush()  # in a pipe it would wait until the end
        server.serve_forever()
