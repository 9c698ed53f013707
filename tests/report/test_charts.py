"""Charts: what they hold, and that they are written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nas.report.charts import write_chart
from nas.report.front_chart import front_chart
from nas.report.run_view import RunView

BEGINNINGS = {".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF"}


def layers(chart: Any) -> list[dict[str, Any]]:
    """The innermost layers of a chart's specification, each with its rows."""
    specification = chart.to_dict()
    found, rest = [], [specification]
    while rest:
        spec = rest.pop(0)
        inner = spec.get("layer", [])
        rest += [{"data": spec.get("data"), **each} for each in inner]
        if not inner:
            found.append({**spec, "rows": specification["datasets"][spec["data"]["name"]]})
    return found


@pytest.fixture(scope="module")
def chart(view: RunView) -> Any:
    return front_chart(view)


def test_front_has_titles_units_and_caption(chart: Any, view: RunView) -> None:
    spec = chart.to_dict()
    encodings = [layer["encoding"] for layer in layers(chart)]
    titles = {e[a]["axis"]["title"] for e in encodings for a in "xy" if e.get(a, {}).get("axis")}
    assert {"accuracy %: share got right", "MACs: multiply-adds"} <= titles
    assert spec["title"]["text"] == "attention_v2 · vit-cifar10"
    caption = f"seed 7 · 34 mechanisms evaluated · hypervolume {view.hypervolume:.4f}"
    assert spec["title"]["subtitle"] == f"{caption} · bars: standard errors"


def test_estimates_have_error_bars_and_scores_have_none(chart: Any, view: RunView) -> None:
    marks = next(layer for layer in layers(chart) if "shape" in layer["encoding"])
    by_series: dict[str, list[dict[str, Any]]] = {}
    for row in marks["rows"]:
        by_series.setdefault(row["series"], []).append(row)
    assert [*by_series] == ["every other mechanism", "front", "named mechanisms"]
    assert all(row["low"] == row["high"] for row in by_series["every other mechanism"])
    assert all(row["low"] < row["high"] for row in by_series["front"])
    measured = [(c.objectives["macs"], 100 * c.scores["accuracy"]) for c in view.candidates]
    assert [(row["x"], row["y"]) for row in by_series["every other mechanism"]] == measured
    believed = [(m.objectives["macs"], 100 * m.objectives["accuracy"]) for m in view.members]
    assert [(row["x"], row["y"]) for row in by_series["front"]] == believed


@pytest.mark.parametrize("suffix", [*BEGINNINGS])
def test_charts_are_written_in_each_format(chart: Any, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"front{suffix}"
    write_chart(chart, path)
    assert path.read_bytes().startswith(BEGINNINGS[suffix])
