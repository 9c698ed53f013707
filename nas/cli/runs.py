"""Commands that read runs and tables, such as ``nas runs``, ``front``, ``report`` and ``watch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from nas.cli import options
from nas.cli.app import app
from nas.cli.console import complain, note, output, print_json

RUNS_SHOWN: Final = typer.Argument(help="Names or paths of runs; default: latest.")


@app.command()
def runs(as_json: options.AsJson = False, runs: options.Runs = Path("runs")) -> None:
    """List the recorded searches (runs), the last active one last."""
    from nas.report.front_columns import RUN_COLUMNS
    from nas.report.table import Table, say, say_table
    from nas.store.folder import list_runs

    summaries, problems = list_runs(runs)
    if as_json:
        rows = Table(RUN_COLUMNS, summaries).records()
        print_json({"runs": rows, "problems": [str(problem) for problem in problems]})
        return
    if summaries:
        say_table(output(), Table(RUN_COLUMNS, summaries))
        for stopped in (summary for summary in summaries if summary.status == "stopped"):
            if reason := stopped.sessions[-1].note:
                say(output(), f"{stopped.name} stopped: {reason}")
    else:
        say(output(), f"No runs in {runs} yet; `nas search --space quickstart` makes one.")
    for problem in problems:
        complain(str(problem))


@app.command()
def front(
    run: options.RunName = "latest",
    plot: Annotated[Path | None, options.picture("the front")] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write the table into this file.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a run's front: its non-dominated mechanisms, with costs.

    Exit status 1 if the front is empty.
    """
    from nas.report.charts import write_chart
    from nas.report.front import front as read_front
    from nas.report.front import no_front, show_front
    from nas.store.files import write_file

    result = read_front(run)
    if as_json:
        print_json(result.to_dict())
    if not result.view.members:
        complain(no_front(result.view))
        raise typer.Exit(1)
    if not as_json:
        show_front(output(), result.view)
    if plot is not None:
        write_chart(result.plot(), plot)
        note(f"{plot}: the front as a picture.")
    if csv is not None:
        write_file(csv, result.table.to_csv(index=False).encode())
        note(f"{csv}: the front as CSV.")


@app.command()
def report(
    path: Annotated[Path, typer.Option("-o", "--output", help="The .html file to write.")],
    runs: Annotated[list[str] | None, RUNS_SHOWN] = None,
) -> None:
    """Write a report of runs as one HTML file.

    It states the metrics of mechanisms and their uncertainty, costs, parents, failed trainings, and
    how to repeat the run. Several runs are compared in one figure.
    """
    from nas.report.page import write_report

    written = write_report(runs or ["latest"], path)
    note(f"{written}: {written.stat().st_size / 1e6:.2f} MB; open it in a browser.")


@app.command()
def watch(run: options.RunName = "latest", runs: options.Runs = Path("runs")) -> None:
    """Watch a run that another process writes, until it ends.

    The command only reads, and never delays the writer. Exit status 1 if the run was stopped or the
    writer no longer exists.
    """
    from nas.report.display import display, follow, why_stopped
    from nas.report.front import no_front, show_front
    from nas.report.run_view import RunView
    from nas.report.table import say
    from nas.store import RUNS, find_run, open_run

    folder = find_run(run, runs)
    label = run if runs == RUNS else str(folder)
    console = output()
    with display(console) as shown:
        status = follow(folder, shown)
    with open_run(folder) as opened:
        if status != "finished":
            if shown.is_live:  # a pipe has this line already
                say(console, shown.line)
            complain(why_stopped(opened))
            raise typer.Exit(1)
        view = RunView.read(opened, label)
    if not view.candidates:
        complain(no_front(view))
        raise typer.Exit(1)
    show_front(console, view)
