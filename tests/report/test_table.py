"""A table fits its terminal line by line; a pipe gets all of it."""

from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text

from nas.report.table import TextColumn, say, say_table, table_lines

COLUMNS = [
    TextColumn("id", ("ab12", "cd34")),
    TextColumn("macs", ("1.2 M", "900 k"), "right"),
    TextColumn("note", ("x" * 10, ""), rank=2),
    TextColumn("formula", ("Σ_heads softmax(Q·Kᵀ)·V", "x"), rank=1, least=8),
]


def texts(width: int | None) -> list[str]:
    return [line.plain for line in table_lines(COLUMNS, width)]


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


def test_escapes_of_a_terminal_are_not_printed():
    console = Console(file=io.StringIO(), width=80)
    for line in ("run \x1b[2J", Text("run \x1b[2J", "bold")):
        say(console, line)
    say_table(console, [TextColumn("", ["run \x1b[2J"])])
    assert console.file.getvalue() == "run \\u001b[2J\n" * 3
