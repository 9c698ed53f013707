"""``nas plugins``: what other packages offer here, and what of it is broken."""

from __future__ import annotations

from typing import Any

import typer

from nas.cli.app import app
from nas.cli.console import output, print_json
from nas.cli.options import AsJson


@app.command()
def plugins(as_json: AsJson = False) -> None:
    """List the plug-ins of other packages, a group at a time; exit status 1 if one is broken."""
    from nas.api.genomes import list_plugins
    from nas.report.table import Column, say_table

    answer = list_plugins()
    rows = [row for group in answer["groups"] for row in _rows(group)]
    if as_json:
        print_json(answer)
    else:
        titles = ("group", "plug-in", "package", "names")
        columns = [Column(title, [row[i] for row in rows]) for i, title in enumerate(titles)]
        say_table(output(), columns)
    if any(found["fault"] for group in answer["groups"] for found in group["plugins"]):
        raise typer.Exit(1)


def _rows(group: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """A row a plug-in; one that says "none" where there is none."""
    found = [
        (
            group["group"],
            plugin["name"],
            f"{plugin['package']} {plugin['version']}",
            f"broken: {plugin['fault']}" if plugin["fault"] else ", ".join(plugin["members"]),
        )
        for plugin in group["plugins"]
    ]
    return found or [(group["group"], "none", "", "")]
