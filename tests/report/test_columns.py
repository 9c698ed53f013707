"""A column is declared once and has the same values in every output."""

from __future__ import annotations

import csv
import io

import pytest

from nas.report.columns import Column, csv_text, legend, records, text_columns

Row = tuple[str, float | None, float | None]
ROWS: list[Row] = [("a", 0.25, 0.01), ("b", None, None)]
COLUMNS: list[Column[Row]] = [
    Column("name", "name", lambda row: row[0], is_number=False),
    Column(
        "share_fraction",
        "share %",
        lambda row: row[1],
        unit="fraction",
        error=lambda row: row[2],
        about="share: of all.",
    ),
    Column("half", "", lambda row: row[1] and row[1] / 2, about="half: of the share."),
    Column("unknown", "unknown", lambda row: None, about="unknown: nothing."),
]


def test_text_shows_values_with_errors_and_leaves_out_empty_columns() -> None:
    shown = text_columns(COLUMNS, ROWS)
    assert [(c.header, list(c.cells), c.align) for c in shown] == [
        ("name", ["a", "b"], "left"),
        ("share %", ["25.0 ± 1.0", ""], "right"),
    ]
    assert legend(COLUMNS, ROWS) == ["share: of all.", "half: of the share."]


def test_json_and_csv_have_numbers_in_full() -> None:
    first, _ = records(COLUMNS, ROWS)
    assert first == {"name": "a", "share_fraction": 0.25, "half": 0.125, "unknown": None}
    written, second = csv.DictReader(io.StringIO(csv_text(COLUMNS, ROWS)))
    assert written == {key: "" if value is None else str(value) for key, value in first.items()}
    assert second["share_fraction"] == ""


@pytest.mark.parametrize(
    "text", ["=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\t=1", "\x1b]0;", "a\n=1"]
)
def test_no_csv_cell_is_a_formula_of_a_spreadsheet(text: str) -> None:
    (row,) = csv.DictReader(io.StringIO(csv_text(COLUMNS, [(text, None, None)])))
    safe = text.replace("\x1b", "\\u001b")
    assert row["name"] == (f"'{safe}" if safe[0] in "=+-@\t" else safe)
