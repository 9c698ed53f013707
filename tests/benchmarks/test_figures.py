"""Figures: alternating rounds, ratios, history and table."""

from __future__ import annotations

from benchmarks.figures import (
    Figure,
    interleaved,
    ratio,
)


def test_functions_run_alternately() -> None:
    calls: list[str] = []
    works = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    taken = interleaved(works, rounds=3)
    assert calls == ["a", "b"] * 4  # the first round warms up
    assert {name: len(samples) for name, samples in taken.items()} == {"a": 3, "b": 3}


def test_ratio_uses_fastest_rounds_and_spread_single_rounds() -> None:
    figure = ratio("plain / ours", [6.0, 8.0, 12.0], [3.0, 2.0, 2.0])
    assert figure == Figure("plain / ours", 3.0, "x", 3.0, 5.0)
