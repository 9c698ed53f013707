"""``nas doctor``: this machine, its plug-ins, and the faults of a run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from nas.cli import options
from nas.cli.app import app
from nas.cli.console import output, print_json


@app.command()
def doctor(
    run: Annotated[
        str | None,
        typer.Argument(help="Also check this run."),
    ] = None,
    as_json: options.AsJson = False,
    runs: options.Runs = Path("runs"),
) -> None:
    """Look at this machine, and for faults of a run.

    Looks at versions, devices, data, disk and plug-ins, without a network and without changes. Exit
    status 1 if something is broken; the output then says what helps. `nas resume RUN` restores
    derived files of a run.
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
