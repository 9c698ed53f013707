"""Charts: what they hold, and that they are written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nas.report.charts import comparison_chart, write_chart
from nas.report.front_chart import front_chart
from nas.report.run_view import RunView

from .test_comparison import BITS, compared, trainings

BEGINNINGS = {".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF"}


def layers(chart: Any) -> list[dict[str, Any]]:
    """The innermost layers of a chart's specification, each with its rows."""
    specification = chart.to_dict()
    found, rest = [], [specification]
    while rest:
        spec = rest.pop(0)
        inner = spec.get("layer") or spec.get("hconcat")
        rest += [{"data": spec.get("data"), **each} for each in inner or ()]
        if not inner:
            found.append({**spec, "rows": specification["datasets"][spec["data"]["name"]]})
    return found


def rows_of(chart: Any) -> list[dict[str, Any]]:
    return [row for layer in layers(chart) for row in layer["rows"]]


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


def test_comparison_points_to_the_right_where_a_mechanism_is_better() -> None:
    values = {"mha": [2.5, 2.6, 2.4], "up": [2.0, 2.11, 1.9], "like": [2.5, None, 2.4]}
    rows = rows_of(comparison_chart(compared(trainings(values, BITS), 3)))
    (up,) = {row["lead"] for row in rows if row.get("mechanism") == "up"}
    assert up == pytest.approx(0.4967, abs=1e-3)
    assert {row["verdict"] for row in rows if row.get("mechanism") == "up"} == {"better"}
    assert {row.get("mechanism") for row in rows} == {"up", None}  # one without failed trainings


@pytest.mark.parametrize("suffix", [*BEGINNINGS])
def test_charts_are_written_in_each_format(chart: Any, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"front{suffix}"
    write_chart(chart, path)
    assert path.read_bytes().startswith(BEGINNINGS[suffix])
