"""``nas runs``: the list of runs."""

from __future__ import annotations

from pathlib import Path

from nas.cli.app import app
from nas.cli.options import AsJson, Runs


@app.command()
def runs(as_json: AsJson = False, runs: Runs = Path("runs")) -> None:
    """List the runs, last active last."""
    from nas.cli.console import complain, output, print_json
    from nas.report.runs import runs_answer, runs_columns
    from nas.report.table import say, say_table
    from nas.store import list_runs

    found, problems = list_runs(runs)
    if as_json:
        print_json(runs_answer(found, problems))
        return
    if found:
        say_table(output(), runs_columns(found))
    else:
        say(output(), f"No runs in {runs} yet; `nas search --space quickstart` makes one.")
    for problem in problems:
        complain(str(problem))
