"""Figures: alternating rounds, ratios, history and table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.figures import (
    Figure,
    append_history,
    interleaved,
    print_table,
    rate,
    ratio,
)


def test_functions_run_alternately() -> None:
    calls: list[str] = []
    works = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    taken = interleaved(works, rounds=3)
    assert calls == ["a", "b"] * 4  # the first round warms up
    assert {name: len(samples) for name, samples in taken.items()} == {"a": 3, "b": 3}


def test_short_function_is_repeated() -> None:
    calls: list[int] = []
    interleaved({"short": lambda: calls.append(1)}, rounds=2, least_seconds=0.01)
    assert len(calls) > 20


def test_ratio_uses_fastest_rounds_and_spread_single_rounds() -> None:
    figure = ratio("plain / ours", [6.0, 8.0, 12.0], [3.0, 2.0, 2.0])
    assert figure == Figure("plain / ours", 3.0, "x", 3.0, 5.0)


def test_rate_uses_fastest_round() -> None:
    assert rate("judged", 100, [2.0, 4.0], "genomes/s").value == 50.0
    assert rate("judged", 100, [2.0], "genomes/s").spread == "50.00 to 50.00"


def test_history_appends_json_lines(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    figure = Figure("ours", 3.5, "core-seconds", 3.25, 4.0)
    for _ in range(2):
        append_history(history, "evaluation", [figure], {"processor": "one", "torch": "2.9"})
    first, _ = (json.loads(line) for line in history.read_text().splitlines())
    assert set(first) == {"date", "benchmark", "processor", "torch", "figures"}
    assert first["figures"] == {"ours": [3.5, 3.25, 4.0, "core-seconds"]}


def test_table_contains_figures(capsys: pytest.CaptureFixture[str]) -> None:
    print_table({"driver": [Figure("quickstart", 1.714, "ms a candidate", 1.8, 12_345.6)]})
    line = capsys.readouterr().out.splitlines()[-1]
    assert " ".join(line.split()) == "driver quickstart 1.71 ms a candidate 1.80 to 12,346"
