"""Printing: colours and widths follow the terminal, a pipe gets plain text."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from nas.common.text import message, printable

if TYPE_CHECKING:
    from rich.console import Console


def output(*, is_error: bool = False) -> Console:
    """A console of the current standard output or error; rich reads NO_COLOR, TERM and COLUMNS."""
    from rich.console import Console

    return Console(stderr=is_error, highlight=False, markup=False, emoji=False)


def print_json(answer: Any) -> None:
    """Print a JSON answer on standard output."""
    tell(json.dumps(answer, indent=2, ensure_ascii=False, allow_nan=False))


def tell(text: str) -> None:
    """Print a line of text on standard output."""
    sys.stdout.write(f"{printable(text)}\n")


def note(text: str) -> None:
    """Print a line on standard error: progress, or what was written beside the answer."""
    sys.stderr.write(f"{printable(text)}\n")


def complain(text: str) -> None:
    """Print one message on standard error."""
    note(f"nas: {message(text)}")
