"""The picture of cost against length: every line is there, named, and apart from the others."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from nas.report.cost_plot import draw_costs, plot_costs, spread_apart
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


def names(axes: Any) -> list[Any]:
    return list(axes.texts)


def test_every_mechanism_is_a_line_with_its_name(figure: Any) -> None:
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == list(NAMES)
    assert {text.get_text() for text in names(axes)} == set(NAMES)


def test_lines_hold_the_costs(figure: Any, found: list[Costed]) -> None:
    line = figure.axes[0].lines[1]
    assert list(line.get_xdata()) == [64, 256, 1024]
    assert list(line.get_ydata()) == [cost.macs for cost in found[1].costs.values()]


def test_both_axes_are_logarithmic_and_say_what_they_show(figure: Any) -> None:
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "tokens" in axes.get_xlabel()
    assert "multiply-adds" in axes.get_ylabel()


def test_no_two_lines_look_alike(figure: Any) -> None:
    looks = [(line.get_color(), str(line._unscaled_dash_pattern)) for line in figure.axes[0].lines]
    assert len(set(looks)) == len(NAMES)


def test_names_are_apart_and_inside(figure: Any) -> None:
    renderer = figure.canvas.get_renderer()
    # Without the leaders, which cross what is between.
    boxes = [super(type(t), t).get_window_extent(renderer) for t in names(figure.axes[0])]
    heights = sorted((box.y0 + box.y1) / 2 for box in boxes)
    assert all(high - low > 15 for low, high in itertools.pairwise(heights))
    assert all(b.x0 >= 0 and b.x1 <= 1200 and b.y0 >= 0 and b.y1 <= 800 for b in boxes)


@pytest.mark.parametrize("ending", ["svg", "pdf"])
def test_the_same_costs_give_the_same_file(
    found: list[Costed], tmp_path: Path, ending: str
) -> None:
    paths = [tmp_path / f"{name}.{ending}" for name in ("a", "b")]
    for path in paths:
        plot_costs(found, COUNTED, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == paths


def test_one_line_can_be_drawn(found: list[Costed]) -> None:
    draw_costs(found[:1], COUNTED)


def test_places_far_apart_stay() -> None:
    assert spread_apart([30.0, 10.0, 20.0], 5.0, 100.0) == [30.0, 10.0, 20.0]


def test_places_too_near_give_way_downwards_in_their_order() -> None:
    assert spread_apart([10.0, 9.0, 10.0], 4.0, 100.0) == [10.0, 2.0, 6.0]


def test_nothing_stands_above_the_top() -> None:
    assert spread_apart([10.0, 20.0], 4.0, 11.0) == [7.0, 11.0]
