"""Text that others wrote, made fit to be shown: where it loses its control codes, and its length.

A run's name, a file's path, a key in a file or a failed training's message may hold terminal
escapes, or run to megabytes. All that is printed passes through here, and the messages of all
errors; what a terminal would obey is shown instead.
"""

from __future__ import annotations

import re
from typing import Final

MAX_MESSAGE: Final = 2000
# Control characters but for line ends and tabs, marks that turn the direction of text, surrogates.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with every character that a terminal would obey written out, as ``\\u001b``.

    JSON stays the same JSON.
    """
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def message(text: str) -> str:
    """A message, printable and of at most ``MAX_MESSAGE`` characters; one that is so is kept."""
    shown = printable(text[:MAX_MESSAGE])
    if max(len(text), len(shown)) <= MAX_MESSAGE:
        return shown
    return f"{shown[: MAX_MESSAGE - 50]} ... ({len(text):,} characters in all)"


def last_line(text: str | None) -> str:
    """The last line of an error's text, made safe to show; empty without text."""
    lines = (text or "").strip().splitlines()
    return message(lines[-1]) if lines else ""


def plural(number: int, noun: str) -> str:
    """A count and its noun: "1 repeat", "3 repeats"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
