"""Printing on a terminal, with its colours and width, or as plain text into a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from nas.common.text import message, printable

if TYPE_CHECKING:
    from rich.console import Console


def output(*, is_error: bool = False) -> Console:
    """Return a rich console that prints on standard output, or on standard error."""
    from rich.console import Console

    console = Console(stderr=is_error, highlight=False, markup=False, emoji=False)
    console.width = max(console.width, 1)  # COLUMNS=0 would print nothing
    return console


def print_json(answer: Any) -> None:
    """Print a value as JSON on standard output."""
    tell(json.dumps(answer, indent=2, ensure_ascii=False, allow_nan=False))


def print_result(result: Any, print_table: Callable[[Console, Any], None], as_json: bool) -> None:
    """Print the result of an API function as JSON or by ``print_table``; exit with 1 if not ok."""
    if as_json:
        print_json(result.to_dict())
    else:
        print_table(output(), result)
    if not getattr(result, "is_ok", True):
        raise typer.Exit(1)


def note_training(*done: Any) -> None:
    """Print a finished training with its number, as ``on_training`` of the API functions."""
    from nas.report.comparison_table import training_line

    note(training_line(*done))


def tell(text: str) -> None:
    """Print a line on standard output."""
    sys.stdout.write(f"{printable(text)}\n")


def note(text: str) -> None:
    """Print a line on standard error, such as progress or the name of a written file."""
    sys.stderr.write(f"{printable(text)}\n")


def complain(text: str) -> None:
    """Print an error or a warning on standard error: "nas: " and the shortened text."""
    note(f"nas: {message(text)}")
