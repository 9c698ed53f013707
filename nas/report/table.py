"""Tables of text whose rows fit on one line of the terminal.

``table_lines`` omits columns in the order of their ranks and shortens columns until a row fits. If
the output is a pipe or a file, the table is complete and without escape codes, for `grep` and
`less -S`. (``rich.table`` has no ranks, and also shortens columns in a pipe.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from nas.common.text import printable

GAP: Final = "  "


@dataclass(frozen=True)
class TextColumn:
    """A column of a table as text, with one line for each cell.

    Args:
        cells: text of each row; control characters are escaped.
        style: style of the cells in the syntax of ``rich``.
        rank: columns of the highest rank are omitted first, columns of rank 0 never.
        least: width in characters to which the column may be shortened; 0 if it must not be
            shortened.
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
        """The width of the widest cell or of the header, in characters."""
        return max(map(cell_len, (self.header, *self.cells)))

    @property
    def least_width(self) -> int:
        """The width of the column after the strongest shortening."""
        return min(self.width, self.least or self.width)


def named_values(rows: Sequence[tuple[str, str]]) -> list[TextColumn]:
    """Return the columns of a table without headers: names, and their values."""
    names, values = zip(*rows, strict=True)
    return [TextColumn("", names, style="dim"), TextColumn("", values, least=16)]


def line_width(console: Console) -> int | None:
    """Return the width of the terminal; None if the output is a pipe or a file."""
    return console.width if console.is_terminal else None


def say(console: Console, *lines: str | Text) -> None:
    """Print lines. Long lines are broken between words if the output is a terminal."""
    _print(console, lines, is_wrapped=console.is_terminal)


def say_table(console: Console, columns: Sequence[TextColumn]) -> None:
    """Print a table as ``table_lines`` formats it for the console's width."""
    _print(console, table_lines(columns, line_width(console)), is_wrapped=False)


def _print(console: Console, lines: Sequence[str | Text], *, is_wrapped: bool) -> None:
    for line in lines:
        text = line if isinstance(line, Text) else Text(line)
        text.plain = printable(text.plain)
        console.print(text, soft_wrap=not is_wrapped, highlight=False, markup=False, emoji=False)


def table_lines(columns: Sequence[TextColumn], width: int | None = None) -> list[Text]:
    """Return the header and the rows of a table.

    Lines have at most ``width`` characters, unless the columns of rank 0 alone are wider. Columns
    without any text are omitted, and so is the header if all titles are empty.
    """
    fitted = _fit([column for column in columns if any(column.cells)], width)
    headers = [column.header for column, _ in fitted]
    rows = zip(*(column.cells for column, _ in fitted), strict=True)
    lines = [_line(fitted, headers, is_header=True)] if any(headers) else []
    return lines + [_line(fitted, row, is_header=False) for row in rows]


def omitted(columns: Sequence[TextColumn], width: int | None) -> list[str]:
    """Return the headers of the columns that ``table_lines`` omits because of the width."""
    shown = [column for column, _ in _fit([c for c in columns if any(c.cells)], width)]
    return [c.header for c in columns if any(c.cells) and c not in shown]


def cut(text: str, width: int) -> str:
    """Return a text, shortened to ``width`` characters with an ellipsis if it is wider."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def _fit(columns: Sequence[TextColumn], width: int | None) -> list[tuple[TextColumn, int]]:
    """Return the columns that fit the width, each with its width after shortening."""
    if width is None:
        return [(column, column.width) for column in columns]
    kept = list(columns)

    def spare() -> int:
        return width - sum(c.least_width for c in kept) - len(GAP) * (len(kept) - 1)

    while spare() < 0 and (rank := max(column.rank for column in kept)):
        kept.remove(next(column for column in reversed(kept) if column.rank == rank))
    rest, fitted = max(0, spare()), []
    for column in kept:
        size = min(column.width, column.least_width + rest)
        rest -= size - column.least_width
        fitted.append((column, size))
    return fitted


def _line(
    fitted: Sequence[tuple[TextColumn, int]], cells: Sequence[str], *, is_header: bool
) -> Text:
    line = Text(no_wrap=True)
    for i, ((column, width), cell) in enumerate(zip(fitted, cells, strict=True)):
        text = cut(cell, width)
        padding = " " * (width - cell_len(text))
        before, after = (padding, "") if column.align == "right" else ("", padding)
        line.append((GAP if i else "") + before)
        line.append(text, "bold" if is_header else column.style)
        line.append(after)
    line.rstrip()
    return line
