"""``nas doctor`` and ``nas plugins``: resources of this machine, and installed plug-ins."""

from __future__ import annotations

from pathlib import Path

import typer

from nas.cli import options
from nas.cli.app import app
from nas.cli.console import output, print_json


@app.command(rich_help_panel="Develop")
def plugins(as_json: options.AsJson = False) -> None:
    """List the plug-ins of other packages, a group at a time; exit status 1 if one is broken."""
    from nas.api.genomes import list_plugins
    from nas.report.table import TextColumn, say_table

    answer = list_plugins()
    rows = []
    for group in answer["groups"]:
        for plugin in group["plugins"]:
            members, fault = ", ".join(plugin["members"]), plugin["fault"]
            package = f"{plugin['package']} {plugin['version']}"
            names = f"broken: {fault}" if fault else members
            rows.append((group["group"], plugin["name"], package, names))
        if not group["plugins"]:
            rows.append((group["group"], "none", "", ""))
    if as_json:
        print_json(answer)
    else:
        titles, cells = ("group", "plug-in", "package", "names"), zip(*rows, strict=True)
        say_table(output(), [TextColumn(*column) for column in zip(titles, cells, strict=True)])
    if any(plugin["fault"] for group in answer["groups"] for plugin in group["plugins"]):
        raise typer.Exit(1)


@app.command(rich_help_panel="Develop")
def doctor(as_json: options.AsJson = False, runs: options.Runs = Path("runs")) -> None:
    """Look at this machine: versions, hardware, data, folders, and what a search would use.

    Uses no network. Exit status 1 if something that a search needs is broken; the output then says
    how to mend it.
    """
    from nas.report.doctor import doctor_answer, examine_machine, show_doctor

    findings = examine_machine(runs)
    answer = doctor_answer(findings)
    if as_json:
        print_json(answer)
    else:
        show_doctor(output(), findings)
    if not answer["works"]:
        raise typer.Exit(1)
