"""Words that displays share; ``nas.common.text`` makes other people's text safe to show."""

from __future__ import annotations

from nas.common.text import MAX_MESSAGE, message, printable

__all__ = ["MAX_MESSAGE", "last_line", "message", "plural", "printable"]


def last_line(text: str | None) -> str:
    """The last line of an error's text, which says what it was; empty if there is none."""
    lines = (text or "").strip().splitlines()
    return message(lines[-1]) if lines else ""


def plural(number: int, noun: str) -> str:
    """A count and its noun: "1 repeat", "3 repeats"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
