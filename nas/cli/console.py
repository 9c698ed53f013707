"""Printing on a terminal, with its colours and width, or as plain text into a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nas.common.text import message, printable

if TYPE_CHECKING:
    from rich.console import Console


def output(*, is_error: bool = False) -> Console:
    """Return a rich console that prints on standard output, or on standard error.

    Rich reads the environment variables NO_COLOR, TERM and COLUMNS.
    """
    from rich.console import Console

    return Console(stderr=is_error, highlight=False, markup=False, emoji=False)


def print_json(answer: Any) -> None:
    """Print a value as JSON on standard output."""
    tell(json.dumps(answer, indent=2, ensure_ascii=False, allow_nan=False))


def print_result(result: Any, print_table: Callable[[Console, Any], None], as_json: bool) -> None:
    """Print the result of an API function on standard output, as JSON or by ``print_table``."""
    if as_json:
        print_json(result.to_dict())
    else:
        print_table(output(), result)


def tell(text: str) -> None:
    """Print a line on standard output."""
    sys.stdout.write(f"{printable(text)}\n")


def note(text: str) -> None:
    """Print a line on standard error, such as progress or the name of a written file."""
    sys.stderr.write(f"{printable(text)}\n")


def complain(text: str) -> None:
    """Print an error or a warning on standard error: "nas: " and the shortened text."""
    note(f"nas: {message(text)}")
