"""``nas table`` and ``nas tabulate``: recorded trainings of whole spaces."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli.app import app
from nas.cli.console import note, output, print_json, tell
from nas.cli.options import AsJson, Data, Space, Task, trains

if TYPE_CHECKING:
    from typing import Unpack

    from nas.api.execution import Executing


@app.command()
@trains
def tabulate(
    path: Annotated[Path, typer.Option("-o", "--output", help="The table: NAME.json.gz.")],
    space: Space,
    sources: Annotated[
        list[str] | None, typer.Argument(help="Mechanisms of the space, in place of all.")
    ] = None,
    about: Annotated[str, typer.Option(help="A sentence for people.")] = "",
    task: Task = None,
    data: Data = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each, with other seeds.")] = 3,
    limit: Annotated[
        int | None, typer.Option(min=1, help="So many mechanisms, the first of a fixed draw.")
    ] = None,
    **execution: Unpack[Executing],
) -> None:
    """Train every mechanism of a space, so that searches of it can be replayed in seconds.

    Trainings are kept beside the table as they end: the same command goes on where it was stopped.
    """
    from nas.api.tables import tabulate as make
    from nas.report.trials import trial_line

    made = make(
        space,
        path,
        sources or (),
        about=about,
        task=task,
        data=data,
        seeds=seeds,
        limit=limit,
        on_training=lambda *training: note(trial_line(*training)),
        command=shlex.join(["nas", *sys.argv[1:]]),
        **execution,
    )
    tell(f"{path}: {len(made.mechanisms)} mechanisms, {made.repeats} trainings of each.")


@app.command()
def table(
    name: Annotated[
        str | None, typer.Argument(help="A table, by name or path; a list if none is given.")
    ] = None,
    sources: Annotated[
        list[str] | None, typer.Argument(help="Mechanisms to tell all about.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="A table of longer trainings: how well this one ranks them."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show recorded trainings of a whole space.

    Its front, some of its mechanisms epoch by epoch, or how it ranks beside longer trainings.
    """
    from nas.report import tables as report
    from nas.searching.tabular.table import load_table
    from nas.store.sources import resolve

    if name is None:
        listed = report.list_tables()
        if as_json:
            print_json({"tables": listed})
        else:
            report.show_tables(output(), listed)
        return
    other = load_table(against) if against else None
    genomes = [resolve(source).genome for source in sources or ()]
    answer = report.table_answer(load_table(name), genomes, against=other)
    if as_json:
        print_json(answer)
    else:
        report.show_table(output(), answer)
