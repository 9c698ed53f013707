"""``nas spaces``, ``tasks``, ``primitives`` and ``doctor``: what this installation has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from nas.cli import options
from nas.cli.app import app
from nas.cli.console import output, print_json, tell
from nas.common.config import find_named, read_document
from nas.common.text import printable


@app.command()
def spaces(
    name: Annotated[str | None, typer.Argument(help="A space; default: all.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """List the search spaces, or print the file of one."""
    from nas.api import genomes

    if name is None:
        _list(genomes.list_spaces(), as_json)
    else:
        _file(find_named(name, "search_spaces"), as_json)


@app.command()
def tasks(
    name: Annotated[str | None, typer.Argument(help="A task; default: all.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """List the built-in tasks, or print the file of one."""
    from nas.api import genomes
    from nas.tasks import find_task

    if name is None:
        _list(genomes.list_tasks(), as_json)
    else:
        _file(find_task(name), as_json)


@app.command()
def primitives(
    name: Annotated[str | None, typer.Argument(help="An operation; default: all.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """List the operations of mechanisms, or explain one.

    With a NAME the output gives its types, role, formula, parameters, publication and source code.
    """
    from nas.api import genomes

    if name is None:
        _list(genomes.list_primitives(), as_json)
        return
    found = genomes.primitive(name)
    if as_json:
        print_json(found)
        return
    code = found.pop("code")
    _list({key: text for key, text in found.items() if text}, as_json)
    tell(f"\n{code}")


@app.command()
def doctor(
    run: Annotated[str | None, typer.Argument(help="Also check this run.")] = None,
    as_json: options.AsJson = False,
    runs: options.Runs = Path("runs"),
) -> None:
    """Look at this machine, and for faults of a run.

    Looks at versions, devices, data, disk and plug-ins, without a network and without changes. Exit
    status 1 if something is broken; the output then says what helps.
    """
    from nas.api.doctor import examine
    from nas.report.table import say

    findings = examine(run, runs)
    works = not any(finding.is_broken for finding in findings)
    if as_json:
        print_json({"works": works, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            state = "broken: " if finding.is_broken else ""
            say(output(), f"{finding.about}: {state}{finding.found}")
    if not works:
        raise typer.Exit(1)


def _file(path: Path, as_json: bool) -> None:
    read_document(path)  # raises ConfigError if the file cannot be read
    text = path.read_text(encoding="utf-8-sig")
    if as_json:
        print_json({"path": str(path), "text": text})
    else:
        tell(f"# {path}\n{text}".rstrip("\n"))


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
