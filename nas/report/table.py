"""Tables: each quantity is a column, declared once and rendered in every output.

On a terminal a row takes one line: columns are omitted in the order of their ranks and shortened
until a row fits. In a pipe or a file the table is complete and without escape codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from nas.common.text import printable
from nas.report.result import data_frame
from nas.report.units import amount

if TYPE_CHECKING:
    import pandas

    from nas.common.differences import Difference

T = TypeVar("T")
Value: TypeAlias = str | float | None

GAP: Final = "  "


@dataclass(frozen=True)
class Column(Generic[T]):
    """A quantity that each row of a table has.

    Attributes:
        key: name of the quantity in JSON and data frames.
        title: displayed header; None for a column that is in JSON and data frames only.
        value: function from a row to its value; None if the value is unknown.
        unit: unit of the values; "fraction" is shown in per cent.
        error: function from a row to the standard error that is displayed with the value.
        text: function from a row to the displayed text; by default the value with its error.
        about: one sentence for the legend below the table.
        is_number: whether the cells are aligned to the right.
        rank: columns of the highest rank are omitted first, columns of rank 0 never.
        least: width in characters to which the column may be shortened; 0 if it may not.
        style: style of the cells in the syntax of ``rich``.
        interval: function from a row to a difference that the page draws beside the text.
    """

    key: str
    title: str | None
    value: Callable[[T], Value]
    unit: str = ""
    error: Callable[[T], float | None] | None = None
    text: Callable[[T], str] | None = None
    about: str = ""
    is_number: bool = True
    rank: int = 0
    least: int = 0
    style: str = ""
    interval: Callable[[T], Difference | None] | None = None

    def cell(self, row: T) -> str:
        """Return the displayed value of a row; empty if the value is unknown."""
        if self.text is not None:
            return self.text(row)
        value, error = self.value(row), self.error(row) if self.error else None
        if value is None or isinstance(value, str):
            return value or ""
        return amount(value, self.unit, error)


@dataclass(frozen=True)
class Table(Generic[T]):
    """Rows of any type, and the columns that are shown of them."""

    columns: Sequence[Column[T]]
    rows: Sequence[T]

    def records(self) -> list[dict[str, Value]]:
        """Return the values of each row as a dict with the keys of the columns, unrounded."""
        return [{column.key: column.value(row) for column in self.columns} for row in self.rows]

    def frame(self) -> pandas.DataFrame:
        """Return the unrounded values as a DataFrame."""
        return data_frame(self.records())

    @property
    def legend(self) -> list[str]:
        """``about`` of each column with a value, without duplicates."""
        shown = (c.about for c in self.columns if c.about and any(map(c.cell, self.rows)))
        return [*dict.fromkeys(shown)]

    def html(self) -> str:
        """Return the displayed texts as an HTML table, escaped."""
        import pandas

        titles = [column.title for column, _ in self.shown]
        rows = [*zip(*(cells for _, cells in self.shown), strict=True)]
        with pandas.option_context("display.max_colwidth", None):
            table = pandas.DataFrame(rows, columns=titles).to_html(index=False, border=0)
        return f'<div style="overflow-x: auto; white-space: nowrap">{table}</div>'

    def lines(self, width: int | None = None) -> list[Text]:
        """Return the header and the rows; no header if all titles are empty.

        Lines have at most ``width`` characters, unless the columns of rank 0 alone are wider.
        Columns without any text are omitted.
        """
        fitted = self._fit(width)
        columns = [(column, size) for column, _, size in fitted]
        headers = [column.title or "" for column, _ in columns]
        rows = zip(*(cells for _, cells, _ in fitted), strict=True)
        lines = [_line(columns, headers, is_header=True)] if any(headers) else []
        return lines + [_line(columns, row, is_header=False) for row in rows]

    def omitted(self, width: int | None) -> list[str]:
        """Return the headers of the columns that ``lines`` omits because of the width."""
        shown = [column for column, _, _ in self._fit(width)]
        return [column.title or "" for column, _ in self.shown if column not in shown]

    @cached_property
    def shown(self) -> list[tuple[Column[T], list[str]]]:
        """The displayed columns that have a text, each with its cells."""
        shown = [
            (column, [printable(column.cell(row)).replace("\n", "\\n") for row in self.rows])
            for column in self.columns
            if column.title is not None
        ]
        return [(column, cells) for column, cells in shown if any(cells)]

    def _fit(self, width: int | None) -> list[tuple[Column[T], list[str], int]]:
        """Return the columns that fit the width, each with its cells and its shortened width."""
        kept = [
            (column, cells, max(map(cell_len, (column.title or "", *cells))))
            for column, cells in self.shown
        ]
        if width is None:
            return kept

        def spare() -> int:
            least = sum(min(size, column.least or size) for column, _, size in kept)
            return width - least - len(GAP) * (len(kept) - 1)

        while spare() < 0 and (rank := max(column.rank for column, _, _ in kept)):
            kept.remove(next(each for each in reversed(kept) if each[0].rank == rank))
        rest, fitted = max(0, spare()), []
        for column, cells, size in kept:
            least = min(size, column.least or size)
            shortened = min(size, least + rest)
            rest -= shortened - least
            fitted.append((column, cells, shortened))
        return fitted


def _line(
    columns: Sequence[tuple[Column[Any], int]], cells: Sequence[str], *, is_header: bool
) -> Text:
    line = Text(no_wrap=True)
    for i, ((column, width), cell) in enumerate(zip(columns, cells, strict=True)):
        text = cut(cell, width)
        padding = " " * (width - cell_len(text))
        before, after = (padding, "") if column.is_number else ("", padding)
        line.append((GAP if i else "") + before)
        line.append(text, "bold" if is_header else column.style)
        line.append(after)
    line.rstrip()
    return line


def named_values(rows: Sequence[tuple[str, str]]) -> Table[tuple[str, str]]:
    """Return a table without headers: names, and their values."""
    return Table([words(0, style="dim"), words(1, least=16)], rows)


def words(index: int, title: str = "", *, is_number: bool = False, **options: Any) -> Column[Any]:
    """Return a displayed column of the texts at an index of rows that are tuples."""
    return Column(str(index), title, lambda row: row[index], is_number=is_number, **options)


def cut(text: str, width: int) -> str:
    """Return a text, shortened to ``width`` characters with an ellipsis if it is wider."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def line_width(console: Console) -> int | None:
    """Return the width of the terminal; None if the output is a pipe or a file."""
    return console.width if console.is_terminal else None


def say(console: Console, *lines: str | Text) -> None:
    """Print lines. Long lines are broken between words if the output is a terminal."""
    _print(console, lines, is_wrapped=console.is_terminal)


def say_table(console: Console, table: Table[Any]) -> None:
    """Print a table, fitted to the width of the terminal."""
    _print(console, table.lines(line_width(console)), is_wrapped=False)


def _print(console: Console, lines: Sequence[str | Text], *, is_wrapped: bool) -> None:
    for line in lines:
        text = line if isinstance(line, Text) else Text(line)
        text.plain = printable(text.plain)
        console.print(text, soft_wrap=not is_wrapped, highlight=False, markup=False, emoji=False)
