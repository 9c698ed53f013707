"""A table fits its terminal line by line; a pipe gets all of it."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from nas.report.table import Column, cut, say, say_table, table_lines

from .conftest import Printed

COLUMNS = [
    Column("id", ("ab12", "cd34")),
    Column("macs", ("1.2 M", "900 k"), "right"),
    Column("note", ("x" * 10, ""), rank=2),
    Column("formula", ("Σ_heads softmax(Q·Kᵀ)·V", "x"), rank=1, least=8),
]


def texts(width: int | None) -> list[str]:
    return [line.plain for line in table_lines(COLUMNS, width)]


def test_without_an_edge_nothing_is_left_out() -> None:
    assert texts(None) == [
        "id     macs  note        formula",
        "ab12  1.2 M  xxxxxxxxxx  Σ_heads softmax(Q·Kᵀ)·V",
        "cd34  900 k              x",
    ]


def test_the_last_column_is_cut_first() -> None:
    assert texts(40)[1] == "ab12  1.2 M  xxxxxxxxxx  Σ_heads softma…"


def test_columns_of_the_highest_rank_go_first() -> None:
    assert texts(30)[:2] == ["id     macs  formula", "ab12  1.2 M  Σ_heads softmax(…"]
    assert texts(20)[:2] == ["id     macs", "ab12  1.2 M"]


@pytest.mark.parametrize("width", range(11, 80))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(cell_len, texts(width))) <= width


def test_rank_0_is_never_left_out() -> None:
    assert texts(3)[1] == "ab12  1.2 M"


def test_empty_columns_and_headers_are_left_out() -> None:
    columns = [Column("", ("a", "b")), Column("empty", ("", ""))]
    assert [line.plain for line in table_lines(columns)] == ["a", "b"]


def test_cut_counts_cells_not_characters() -> None:
    assert cut("注意注意", 5) == "注意…"
    assert cut("attention", 9) == "attention"


def test_a_pipe_gets_long_lines_whole_and_no_escape_codes() -> None:
    pipe = Printed()
    say_table(pipe.console, COLUMNS)
    say(pipe.console, "word " * 60 + "[bold]")
    assert pipe.lines[-1] == "word " * 60 + "[bold]"
    assert "\x1b" not in pipe.text


def test_prose_wraps_on_a_terminal() -> None:
    terminal = Printed(40)
    say(terminal.console, "word " * 30)
    assert max(map(len, terminal.lines)) <= 40
