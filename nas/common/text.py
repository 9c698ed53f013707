"""Prepare untrusted text for display: names, paths and messages of failed trainings.

Such text may contain terminal escapes, or megabytes.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

MAX_MESSAGE: Final = 2000
# Control characters except line feeds and tabs, bidirectional marks, surrogates.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return the text with control characters escaped as ``\\u001b``; JSON stays valid."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def message(text: str) -> str:
    """Return ``printable(text)``, cut to ``MAX_MESSAGE`` characters."""
    shown = printable(text[:MAX_MESSAGE])
    if max(len(text), len(shown)) <= MAX_MESSAGE:
        return shown
    return f"{shown[: MAX_MESSAGE - 50]} ... ({len(text):,} characters in all)"


def last_line(text: str | None) -> str:
    """Return the last line of an error message, printable and shortened; "" for None."""
    lines = (text or "").strip().splitlines()
    return message(lines[-1]) if lines else ""


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or the name of its type."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def plural(number: int, noun: str) -> str:
    """Return a count with its noun, such as "3 repeats"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def encodable(value: Any) -> Any:
    """Return JSON data with infinite numbers and NaN as text, and surrogates, of paths, escaped."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {name: encodable(item) for name, item in value.items()}
        case list() | tuple():
            return [encodable(item) for item in value]
    return value
