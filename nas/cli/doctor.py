"""``nas doctor``: what this machine offers, and what is broken."""

from __future__ import annotations

from pathlib import Path

import typer

from nas.cli.app import app
from nas.cli.console import output, print_json
from nas.cli.options import AsJson, Runs


@app.command()
def doctor(as_json: AsJson = False, runs: Runs = Path("runs")) -> None:
    """Look at this machine: versions, hardware, data, folders, and what a search would use.

    Asks no network. Exit status 1 if something that is needed is broken; it says what helps.
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
