"""A column has the same values in every output; a table fits its terminal."""

from __future__ import annotations

from rich.text import Text

from nas.report.table import Column, Table, say, say_table, words

from .conftest import Printed

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
    Column("half", None, lambda row: row[1] and row[1] / 2, about="half: of the share."),
    Column("unknown", "unknown", lambda row: None, about="unknown: nothing."),
]


def test_text_shows_values_with_errors_and_leaves_out_empty_columns() -> None:
    shown = [(column.title, cells) for column, cells in Table(COLUMNS, ROWS).shown]
    assert shown == [("name", ["a", "b"]), ("share %", ["25.0 ± 1.0", ""])]
    assert Table(COLUMNS, ROWS).legend == ["share: of all.", "half: of the share."]


def test_records_have_numbers_in_full() -> None:
    first, _ = Table(COLUMNS, ROWS).records()
    assert first == {"name": "a", "share_fraction": 0.25, "half": 0.125, "unknown": None}


TEXTS = Table(
    [
        words(0, "id"),
        words(1, "macs", is_number=True),
        words(2, "note", rank=2),
        words(3, "formula", rank=1, least=8),
    ],
    [("ab12", "1.2 M", "x" * 10, "Σ_heads softmax(Q·Kᵀ)·V"), ("cd34", "900 k", "", "x")],
)


def texts(width: int | None) -> list[str]:
    return [line.plain for line in TEXTS.lines(width)]


def test_columns_are_cut_then_left_out_by_rank() -> None:
    assert texts(None) == [
        "id     macs  note        formula",
        "ab12  1.2 M  xxxxxxxxxx  Σ_heads softmax(Q·Kᵀ)·V",
        "cd34  900 k              x",
    ]
    assert texts(40)[1] == "ab12  1.2 M  xxxxxxxxxx  Σ_heads softma…"
    assert texts(30)[:2] == ["id     macs  formula", "ab12  1.2 M  Σ_heads softmax(…"]
    assert texts(20)[:2] == ["id     macs", "ab12  1.2 M"]
    assert texts(3)[1] == "ab12  1.2 M"


def test_escapes_of_a_terminal_are_not_printed(pipe: Printed) -> None:
    for line in ("run \x1b[2J", Text("run \x1b[2J", "bold")):
        say(pipe.console, line)
    say_table(pipe.console, Table([words(0)], [("run \x1b[2J",)]))
    assert pipe.text == "run \\u001b[2J\n" * 3
