"""Pictures: what they hold, and that they are written whole or not at all."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from nas.common.errors import RunError
from nas.common.objectives import Objective
from nas.report.charts import check_picture, write_figure
from nas.report.plot import FrontAxes, draw_front
from nas.report.run_view import RunView

PARAMS = Objective("params", "min", "count", "learned numbers", 0.0, 1.0, is_metric=False)
NAMES = ("mha", "gqa", "mqa", "sqa", "ssqa", "xsqa", "xsmqa", "lsqa", "rsqa", "qana", "messages")


@pytest.fixture(scope="module")
def figure(view: RunView) -> Any:
    return draw_front(view)


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


def test_pictures_that_cannot_be_written_are_errors(figure: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"front\.jpeg.*found the ending '\.jpeg'.*\.png"):
        check_picture(Path("front.jpeg"))
    with pytest.raises(RunError, match="'none'"):
        check_picture(Path("front"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="cannot be written"):
        write_figure(figure, tmp_path / "file" / "front.png")
