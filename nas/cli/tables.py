"""``nas table``: recorded trainings of whole spaces."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli import options
from nas.cli.app import app
from nas.cli.console import output, print_json


@app.command()
def table(
    name: Annotated[
        str | None, typer.Argument(help="A table, by name or path; default: a list of all.")
    ] = None,
    sources: Annotated[list[str] | None, typer.Argument(help="Mechanisms to show in full.")] = None,
    against: Annotated[
        str | None,
        typer.Option(help="A table of longer trainings to compare rankings with."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a table: recorded trainings of every mechanism of a space.

    Shows its front, some of its mechanisms epoch by epoch, or its agreement with longer trainings.
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
