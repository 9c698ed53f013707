"""Tables whose rows fit on one line of the terminal.

Columns are omitted by rank and the last one is cut until a row fits. In a pipe or a file a table is
complete and without escape codes, for `grep` and `less -S`. (``rich.table`` has no ranks, and also
cuts in a pipe.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from nas.common.text import printable

Line: TypeAlias = str | Text

GAP: Final = "  "
ELLIPSIS: Final = "…"


@dataclass(frozen=True)
class TextColumn:
    """A column of cells, each one printable line.

    Args:
        rank: columns of the highest rank are omitted first, those of rank 0 never.
        least: minimum width after cutting; 0 if the column must not be cut.
    """

    header: str
    cells: Sequence[str]
    align: Literal["left", "right"] = "left"
    style: str = ""
    rank: int = 0
    least: int = 0

    def __post_init__(self) -> None:
        cells = [printable(cell).replace("\n", "\\n") for cell in self.cells]
        object.__setattr__(self, "cells", cells)

    @property
    def width(self) -> int:
        """Characters of the widest cell."""
        return max(map(cell_len, (self.header, *self.cells)))


def line_width(console: Console) -> int | None:
    """The width of the terminal; None in a pipe."""
    return console.width if console.is_terminal else None


def say(console: Console, *lines: Line) -> None:
    """Print lines; they wrap between words on a terminal, not in a pipe."""
    for line in lines:
        shown = printable(line) if isinstance(line, str) else line
        console.print(
            shown, soft_wrap=not console.is_terminal, highlight=False, markup=False, emoji=False
        )


def say_table(console: Console, columns: Sequence[TextColumn]) -> None:
    """Print a table; see ``table_lines``."""
    say_lines(console, table_lines(columns, line_width(console)))


def say_lines(console: Console, lines: Sequence[Text]) -> None:
    """Print lines without wrapping."""
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)


def table_lines(columns: Sequence[TextColumn], width: int | None = None) -> list[Text]:
    """Header and rows as lines of at most ``width`` characters, unless rank 0 alone is wider.

    Columns without any text are omitted, and so is an empty header.
    """
    fitted = fit([column for column in columns if any(column.cells)], width)
    headers = [column.header for column, _ in fitted]
    rows = zip(*(column.cells for column, _ in fitted), strict=True)
    lines = [_line(fitted, headers, is_header=True)] if any(headers) else []
    return lines + [_line(fitted, row, is_header=False) for row in rows]


def named_values(rows: Sequence[tuple[str, str]]) -> list[TextColumn]:
    """A table of two columns without headers: a name, and its value."""
    words, values = zip(*rows, strict=True)
    return [TextColumn("", words, style="dim"), TextColumn("", values, least=16)]


def fit(columns: Sequence[TextColumn], width: int | None) -> list[tuple[TextColumn, int]]:
    """The columns that fit into the width, each with its own width."""
    kept = list(columns)
    while width is not None and _least_width(kept) > width:
        worst = max(column.rank for column in kept)
        if worst == 0:
            break
        kept.remove(next(column for column in reversed(kept) if column.rank == worst))
    spare = None if width is None else max(0, width - _least_width(kept))
    fitted = []
    for column in kept:
        least = _least(column)
        size = column.width if spare is None else min(column.width, least + spare)
        spare = None if spare is None else spare - (size - least)
        fitted.append((column, size))
    return fitted


def cut(text: str, width: int) -> str:
    """The text, or its beginning and an ellipsis."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + ELLIPSIS


def _least(column: TextColumn) -> int:
    return min(column.width, column.least) if column.least else column.width


def _least_width(columns: Sequence[TextColumn]) -> int:
    return sum(map(_least, columns)) + len(GAP) * (len(columns) - 1)


def _line(
    fitted: Sequence[tuple[TextColumn, int]], cells: Sequence[str], *, is_header: bool
) -> Text:
    line = Text(no_wrap=True)
    for i, ((column, width), cell) in enumerate(zip(fitted, cells, strict=True)):
        text = cut(cell, width)
        padding = " " * (width - cell_len(text))
        is_last = i == len(fitted) - 1
        line.append(GAP if i else "")
        line.append(padding if column.align == "right" else "")
        line.append(text, "bold" if is_header else column.style)
        line.append(padding if column.align == "left" and not is_last else "")
    line.rstrip()
    return line
