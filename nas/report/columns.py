"""Columns of tables: each quantity is declared once and rendered in every output.

A table is a list of ``Column`` and a list of rows of any type. ``text_columns`` renders it for the
terminal, ``html_table`` for notebooks, ``csv_text`` for spreadsheets; ``records`` are its rows in
JSON and data frames.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final, Generic, TypeAlias, TypeVar

from nas.common.text import printable
from nas.report.table import TextColumn
from nas.report.units import amount

T = TypeVar("T")
Value: TypeAlias = str | float | None

# A spreadsheet evaluates a text that begins with one of these characters as a formula.
FORMULAS: Final = ("=", "+", "-", "@", "\t")


@dataclass(frozen=True)
class Column(Generic[T]):
    """A quantity that each row of a table has.

    Attributes:
        key: name of the quantity in JSON, CSV and data frames.
        title: displayed header; columns without a title are in CSV, JSON and data frames only.
        value: function from a row to its value; None if the value is unknown.
        unit: unit of the values; "fraction" is shown in per cent.
        error: function from a row to the standard error that is displayed with the value.
        text: function from a row to the displayed text; by default the value with its error.
        about: one sentence for the legend below the table.
        is_number: whether the cells are aligned to the right.
        rank, least, style: see ``TextColumn``.
    """

    key: str
    title: str
    value: Callable[[T], Value]
    unit: str = ""
    error: Callable[[T], float | None] | None = None
    text: Callable[[T], str] | None = None
    about: str = ""
    is_number: bool = True
    rank: int = 0
    least: int = 0
    style: str = ""

    def cell(self, row: T) -> str:
        """Return the displayed value of a row; empty if the value is unknown."""
        if self.text is not None:
            return self.text(row)
        value, error = self.value(row), self.error(row) if self.error else None
        if value is None or isinstance(value, str):
            return value or ""
        return amount(value, self.unit, error)


def text_columns(columns: Sequence[Column[T]], rows: Sequence[T]) -> list[TextColumn]:
    """Return the columns as text for a terminal; untitled and empty columns are omitted."""
    rendered = [
        TextColumn(
            column.title,
            [column.cell(row) for row in rows],
            "right" if column.is_number else "left",
            column.style,
            column.rank,
            column.least,
        )
        for column in columns
        if column.title
    ]
    return [column for column in rendered if any(column.cells)]


def legend(columns: Sequence[Column[T]], rows: Sequence[T]) -> list[str]:
    """Return the legend of a table: ``about`` of each column with a value, without duplicates."""
    shown = (c.about for c in columns if c.about and any(c.cell(row) for row in rows))
    return [*dict.fromkeys(shown)]


def html_table(columns: Sequence[Column[T]], rows: Sequence[T]) -> str:
    """Return the table as HTML for light and dark backgrounds; all texts are escaped."""

    def line(tag: str, texts: Sequence[str]) -> str:
        cells = (
            f'<{tag} style="text-align: {column.align}; padding: 0.2em 0.7em; '
            f'white-space: nowrap">{escape(text)}</{tag[:2]}>'
            for column, text in zip(shown, texts, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"

    shown = text_columns(columns, rows)
    head = line('th scope="col"', [column.header for column in shown])
    body = "".join(line("td", cells) for cells in zip(*(c.cells for c in shown), strict=True))
    # Some notebooks give tables another text colour.
    table = f'<table style="color: inherit"><thead>{head}</thead><tbody>{body}</tbody></table>'
    return f'<div style="overflow-x: auto">{table}</div>'


def records(columns: Sequence[Column[T]], rows: Sequence[T]) -> list[dict[str, Value]]:
    """Return the values of each row as a dict with the keys of the columns, unrounded."""
    return [{column.key: column.value(row) for column in columns} for row in rows]


def csv_text(columns: Sequence[Column[T]], rows: Sequence[T]) -> str:
    """Return the table as CSV with unrounded numbers.

    An apostrophe is put before each text that a spreadsheet would evaluate as a formula, because
    texts may be untrusted.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_safe(column.key) for column in columns)
    writer.writerows(map(_safe, row.values()) for row in records(columns, rows))
    return text.getvalue()


def _safe(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(FORMULAS) else text
