"""Pictures: what they hold, and that they are written whole or not at all."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from nas.common.errors import RunError
from nas.common.objectives import Objective
from nas.report.charts import check_picture, draw_costs, write_figure
from nas.report.costs import CostTable, count_costs
from nas.report.plot import FrontAxes, draw_front
from nas.report.run_view import RunView
from nas.store.sources import resolve

PARAMS = Objective("params", "min", "count", "learned numbers", 0.0, 1.0, is_metric=False)
NAMES = ("mha", "gqa", "mqa", "sqa", "ssqa", "xsqa", "xsmqa", "lsqa", "rsqa", "qana", "messages")


@pytest.fixture(scope="module")
def figure(view: RunView) -> Any:
    return draw_front(view)


@pytest.fixture(scope="module")
def cost_table() -> CostTable:
    return count_costs([resolve(name) for name in NAMES], 64, 8, (64, 256, 1024))


def test_labels_of_published_mechanisms_do_not_overlap(figure: Any, view: RunView) -> None:
    texts = figure.axes[0].texts
    labels = {text.get_text() for text in texts}
    assert {name for name, _ in view.named} <= labels
    assert any(label.startswith("best") for label in labels)
    renderer = figure.canvas.get_renderer()
    # Without the lines to their points.
    boxes = [super(type(t), t).get_window_extent(renderer) for t in texts]
    assert all(not a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert all(b.x0 >= 0 and b.x1 <= 1200 and b.y0 >= 0 and b.y1 <= 800 for b in boxes)


def test_front_has_titles_units_and_caption(figure: Any, view: RunView) -> None:
    (axes,) = figure.axes
    assert axes.get_ylabel() == "accuracy %: share got right"
    assert axes.get_xlabel() == "MACs: multiply-adds"
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert [entry.split(" (")[0] for entry in legend] == ["scores", "front", "named mechanisms"]
    assert figure.get_suptitle() == "attention_v2 · vit-cifar10"
    # What the title says is not said again: the caption is one line and would leave the picture.
    caption = f"seed 7 · 34 mechanisms evaluated · hypervolume {view.hypervolume:.4f}"
    assert figure.get_supxlabel() == f"{caption} · bars: standard errors"


def test_staircase_joins_the_members(figure: Any, view: RunView) -> None:
    (steps,) = (s for s in figure.axes[0].lines if s.get_drawstyle() == "steps-post")
    points = list(zip(steps.get_xdata(), steps.get_ydata(), strict=True))
    assert points == sorted(points)
    values = [member.objectives for member in view.members]
    corners = {(own["macs"], 100 * own["accuracy"]) for own in values}
    assert corners == set(points[:-1]) or corners == set(points)


def test_limits_are_lines(view: RunView) -> None:
    first, *costs = view.setup.objectives
    limits = (dataclasses.replace(first, limit=0.3), dataclasses.replace(costs[0], limit=1e6))
    setup = dataclasses.replace(view.setup, objectives=(*limits, *costs[1:]))
    (axes,) = draw_front(dataclasses.replace(view, setup=setup)).axes[:1]
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [*dashed[0].get_xdata()] == [1e6, 1e6]
    assert [*dashed[1].get_ydata()] == [30.0, 30.0]
    assert "limits of the front" in [t.get_text() for t in axes.get_legend().get_texts()]


def test_estimates_have_error_bars_and_scores_have_none(figure: Any, view: RunView) -> None:
    scores, *estimates = figure.axes[0].containers
    assert not scores.has_yerr
    assert all(container.has_yerr for container in estimates)
    measured = [(c.objectives["macs"], 100 * c.scores["accuracy"]) for c in view.candidates]
    assert [*zip(*scores.lines[0].get_data(), strict=True)] == measured
    believed = [(m.objectives["macs"], 100 * m.objectives["accuracy"]) for m in view.members]
    assert [*zip(*estimates[0].lines[0].get_data(), strict=True)] == believed


def test_fronts_of_every_kind_of_run(view: RunView) -> None:
    alone = view.members[:1]
    draw_front(dataclasses.replace(view, mechanisms=alone, members=alone, names={}))

    first = view.candidates[0]
    assert first.estimate is not None
    estimate = dataclasses.replace(first.estimate, means={**first.estimate.means, "macs": 1e10})
    wide = dataclasses.replace(first, estimate=estimate)
    figure = draw_front(dataclasses.replace(view, mechanisms=(wide, *view.candidates[1:])))
    assert figure.axes[0].get_xscale() == "log"

    def of(*objectives: Objective) -> Any:
        setup = dataclasses.replace(view.setup, objectives=objectives)
        return draw_front(dataclasses.replace(view, setup=setup))

    accuracy, macs = view.setup.objectives
    assert "also an objective: params" in of(accuracy, macs, PARAMS).get_supxlabel()
    loss = dataclasses.replace(accuracy, name="log_loss", direction="min", unit="nat")
    assert FrontAxes.of((accuracy, loss, macs)) == FrontAxes(macs, accuracy)
    with pytest.raises(RunError, match="one objective, accuracy"):
        of(accuracy)


def test_cost_lines_are_distinct_and_named_in_order(
    cost_table: CostTable,
) -> None:
    (axes,) = draw_costs(cost_table).axes
    lines = {line.get_label(): line for line in axes.lines}
    assert tuple(lines) == NAMES
    for rows in cost_table.by_source:
        assert tuple(lines[rows[0].name].get_xdata()) == cost_table.lengths
        assert list(lines[rows[0].name].get_ydata()) == [row.cost.macs for row in rows]
    looks = {(line.get_color(), str(line._unscaled_dash_pattern)) for line in lines.values()}
    assert len(looks) == len(NAMES)
    # Names stand beside the lines, in their order.
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == sorted(NAMES, key=lambda name: -lines[name].get_ydata()[-1])
    box = axes.get_legend().get_window_extent()
    assert box.x0 >= axes.get_window_extent().x1
    assert (box.x1 <= 1200, box.y0 >= 0, box.y1 <= 800) == (True, True, True)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "tokens" in axes.get_xlabel()
    assert "multiply-adds" in axes.get_ylabel()


@pytest.mark.parametrize("ending", ["svg", "pdf"])
@pytest.mark.parametrize("kind", ["front", "costs"])
def test_the_same_numbers_give_the_same_file(
    view: RunView, cost_table: CostTable, tmp_path: Path, kind: str, ending: str
) -> None:
    paths = [tmp_path / f"{name}.{ending}" for name in ("a", "b")]
    for path in paths:
        write_figure(draw_front(view) if kind == "front" else draw_costs(cost_table), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == paths


def test_png_is_1200_by_800(figure: Any, tmp_path: Path) -> None:
    write_figure(figure, tmp_path / "new" / "front.PNG")
    with Image.open(tmp_path / "new" / "front.PNG") as image:
        assert image.size == (1200, 800)


def test_pictures_that_cannot_be_written_are_errors(figure: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"front\.jpeg.*found the ending '\.jpeg'.*\.png"):
        check_picture(Path("front.jpeg"))
    with pytest.raises(RunError, match="'none'"):
        check_picture(Path("front"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="cannot be written"):
        write_figure(figure, tmp_path / "file" / "front.png")
