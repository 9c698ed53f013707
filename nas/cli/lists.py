"""``nas spaces``, ``tasks`` and ``primitives``: names with their descriptions."""

from __future__ import annotations

from collections.abc import Mapping

from nas.cli import options
from nas.cli.app import app
from nas.cli.console import output, print_json
from nas.common.text import printable


@app.command(rich_help_panel="What there is")
def spaces(as_json: options.AsJson = False) -> None:
    """List the search spaces, for ``nas search --space``."""
    from nas.api.genomes import list_spaces

    _list(list_spaces(), as_json)


@app.command(rich_help_panel="What there is")
def tasks(as_json: options.AsJson = False) -> None:
    """List the built-in tasks, for ``--task``."""
    from nas.api.genomes import list_tasks

    _list(list_tasks(), as_json)


@app.command(rich_help_panel="What there is")
def primitives(as_json: options.AsJson = False) -> None:
    """List the operations of which mechanisms are made."""
    from nas.api.genomes import list_primitives

    _list(list_primitives(), as_json)


def _list(descriptions: Mapping[str, str], as_json: bool) -> None:
    from rich.table import Table

    if as_json:
        print_json(dict(descriptions))
        return
    table = Table.grid("", "", padding=(0, 2, 0, 0))
    table.columns[0].no_wrap = True
    for name, description in descriptions.items():
        table.add_row(name, printable(description))
    output().print(table)
