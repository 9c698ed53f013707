"""Alternating rounds, ratios, and tables that are printed row by row."""

from __future__ import annotations

import pytest

from benchmarks.interleaving import interleaved, ratio
from benchmarks.rows import Mean, Spread, print_rows, to_json


def test_functions_run_alternately() -> None:
    calls: list[str] = []
    works = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    taken = interleaved(works, rounds=3)
    assert calls == ["a", "b"] * 4  # the first round warms up
    assert {name: len(samples) for name, samples in taken.items()} == {"a": 3, "b": 3}


def test_ratio_uses_fastest_rounds_and_spread_single_rounds() -> None:
    assert ratio([6.0, 8.0, 12.0], [3.0, 2.0, 2.0]) == Spread(3.0, 3.0, 5.0)


def test_rows_are_printed_under_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"task": "a", "ratio": Spread(1.5, 1.0, 2.0)}, {"task": "b", "error": Mean(1e-5, 0.0)}]
    assert to_json(print_rows(rows)) == [
        {"task": "a", "ratio": [1.5, 1.0, 2.0]}, {"task": "b", "error": [1e-5, 0.0]},
    ]  # fmt: skip
    _, header, first, _, other, second = capsys.readouterr().out.splitlines()
    assert (header.split(), first.split()) == (["task", "ratio"], ["a", "1.50", "[1.00,", "2.00]"])
    assert (other.split(), second.split()) == (["task", "error"], ["b", "1.0e-05", "±", "0.000"])
