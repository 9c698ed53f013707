"""Columns: each quantity of a table is declared once and rendered in every output.

A table is a list of ``Column`` and a list of rows of any type. ``text_columns`` renders it for the
terminal, ``html_table`` for notebooks, ``json_rows`` for JSON, ``csv_text`` for spreadsheets and
``rows_of`` for pandas.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Generic, TypeAlias, TypeVar

from nas.common.objectives import Direction
from nas.common.text import printable
from nas.report.table import TextColumn
from nas.report.units import amount

T = TypeVar("T")
Value: TypeAlias = str | float | None

# A spreadsheet evaluates a text that begins with one of these as a formula.
FORMULAS: Final = ("=", "+", "-", "@", "\t")


@dataclass(frozen=True)
class Column(Generic[T]):
    """A quantity of each row.

    Attributes:
        key: its name in JSON, CSV and data frames, with the unit.
        title: its displayed header; empty for columns of CSV, JSON and data frames only.
        value: returns the value of a row; None if it is unknown.
        unit: "fraction" is shown in per cent.
        error: returns the standard error of the value.
        error_key: the name of the error in CSV and data frames; if empty, it is omitted.
        better: the better direction; None if there is none.
        text: returns the displayed cell; by default the value with its error.
        about: one sentence for the legend.
        in_json: whether ``json_rows`` has it; False if the JSON answer states it elsewhere.
        is_number: numbers are aligned to the right.
        rank, least, style: see ``TextColumn``.
    """

    key: str
    title: str
    value: Callable[[T], Value]
    unit: str = ""
    error: Callable[[T], float | None] | None = None
    error_key: str = ""
    better: Direction | None = None
    text: Callable[[T], str] | None = None
    about: str = ""
    in_json: bool = True
    is_number: bool = True
    rank: int = 0
    least: int = 0
    style: str = ""

    def cell(self, row: T) -> str:
        """The displayed value; empty if it is unknown."""
        if self.text is not None:
            return self.text(row)
        value, error = self.value(row), self.error(row) if self.error else None
        if value is None or isinstance(value, str):
            return value or ""
        return amount(value, self.unit, error)

    def fields(self) -> dict[str, Callable[[T], Value]]:
        """Names and values of its columns in CSV and data frames."""
        fields: dict[str, Callable[[T], Value]] = {self.key: self.value}
        if self.error is not None and self.error_key:
            fields[self.error_key] = self.error
        return fields


def text_columns(columns: Sequence[Column[T]], rows: Sequence[T]) -> list[TextColumn]:
    """The table for a terminal; columns without a title or without any value are omitted."""
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
    """Descriptions of the columns that have values, without duplicates."""
    shown = (c.about for c in columns if c.about and any(c.cell(row) for row in rows))
    return [*dict.fromkeys(shown)]


def html_table(columns: Sequence[Column[T]], rows: Sequence[T]) -> str:
    """The table as HTML for light and dark backgrounds; all texts are escaped."""

    def cell(tag: str, text: str, align: str) -> str:
        style = f"text-align: {align}; padding: 0.2em 0.7em; white-space: nowrap"
        scope = ' scope="col"' if tag == "th" else ""
        return f'<{tag}{scope} style="{style}">{escape(text)}</{tag}>'

    shown = text_columns(columns, rows)
    head = "".join(cell("th", column.header, column.align) for column in shown)
    body = "".join(
        f"<tr>{''.join(cell('td', c.cells[i], c.align) for c in shown)}</tr>"
        for i in range(len(rows))
    )
    # Some notebooks give tables another text colour.
    table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    grid = f'<table style="color: inherit">{table}</table>'
    return f'<div style="overflow-x: auto">{grid}</div>'


def json_rows(columns: Sequence[Column[T]], rows: Sequence[T]) -> list[dict[str, Value]]:
    """A JSON object for each row."""
    return [{c.key: c.value(row) for c in columns if c.in_json} for row in rows]


def csv_text(columns: Sequence[Column[T]], rows: Sequence[T]) -> str:
    """The table as CSV with unrounded numbers.

    Texts may be untrusted: an apostrophe precedes each text that a spreadsheet would evaluate.
    """
    fields = _fields(columns)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_safe, fields))
    writer.writerows([_safe(value(row)) for value in fields.values()] for row in rows)
    return text.getvalue()


def rows_of(columns: Sequence[Column[T]], rows: Sequence[T]) -> list[dict[str, Value]]:
    """A dict for each row with the columns of the CSV, for data frames."""
    fields = _fields(columns)
    return [{name: value(row) for name, value in fields.items()} for row in rows]


def _fields(columns: Sequence[Column[T]]) -> dict[str, Callable[[T], Value]]:
    return {name: value for column in columns for name, value in column.fields().items()}


def _safe(value: Value) -> Value:
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(FORMULAS) else text
