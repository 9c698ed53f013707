"""How `nas search` and `nas resume` end: the front, what to type next, and the exit status."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import typer

from nas.cli.console import complain, output

if TYPE_CHECKING:
    from pathlib import Path

    from nas.searching.listener import Ended


def command_line() -> str:
    """What a person typed, for the record."""
    return shlex.join(["nas", *sys.argv[1:]])


def show_end(ended: Ended, runs: Path) -> None:
    """The front, what to type next, and how the run ended."""
    from nas.report.facts import gather
    from nas.report.front import show_front
    from nas.report.table import say
    from nas.store import RUNS, open_run

    if ended.status == "interrupted":
        complain(ended.message)
        raise typer.Exit(130)
    console = output()
    with open_run(ended.folder) as run:
        facts = gather(run)
    if facts.members:
        show_front(console, facts, ended.run if runs == RUNS else str(ended.folder))
        say(console, "")
    say(console, ended.message)
    if not facts.members:
        raise typer.Exit(1)
