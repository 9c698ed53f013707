"""The picture of cost against length: every line is there, named, and unlike the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nas.report.cost_plot import draw_costs, plot_costs
from nas.report.costs import Block, Costed, costed
from nas.sources import resolve

NAMES = ("mha", "gqa", "mqa", "sqa", "ssqa", "xsqa", "xsmqa", "lsqa", "rsqa", "qana", "messages")
COUNTED = Block(64, 8, (64, 256, 1024))


@pytest.fixture(scope="module")
def found() -> list[Costed]:
    return costed([resolve(name) for name in NAMES], COUNTED)


@pytest.fixture(scope="module")
def figure(found: list[Costed]) -> Any:
    return draw_costs(found, COUNTED)


def test_every_mechanism_is_a_line_of_its_costs_that_looks_like_no_other(
    figure: Any, found: list[Costed]
) -> None:
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert tuple(lines) == NAMES
    for one in found:
        line = lines[one.source.name]
        assert tuple(line.get_xdata()) == COUNTED.lengths
        assert list(line.get_ydata()) == [cost.macs for cost in one.costs.values()]
    looks = {(line.get_color(), str(line._unscaled_dash_pattern)) for line in lines.values()}
    assert len(looks) == len(NAMES)


def test_names_stand_beside_in_the_order_of_the_lines(figure: Any) -> None:
    (axes,) = figure.axes
    last = {line.get_label(): line.get_ydata()[-1] for line in axes.lines}
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == sorted(NAMES, key=lambda name: -last[name])
    box = axes.get_legend().get_window_extent()
    assert box.x0 >= axes.get_window_extent().x1
    assert (box.x1 <= 1200, box.y0 >= 0, box.y1 <= 800) == (True, True, True)


def test_both_axes_are_logarithmic_and_say_what_they_show(figure: Any) -> None:
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "tokens" in axes.get_xlabel()
    assert "multiply-adds" in axes.get_ylabel()


def test_the_same_costs_give_the_same_file(found: list[Costed], tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.svg" for name in ("a", "b")]
    for path in paths:
        plot_costs(found[:1], COUNTED, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == paths
