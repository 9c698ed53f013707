"""The picture of a front: what it holds, and that it is written whole or not at all."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nas.errors import RunError
from nas.objectives import Objective
from nas.report.facts import RunFacts
from nas.report.plot import check_plot, draw, plot_front, position, stairs

from .conftest import read

PARAMS = Objective("params", "min", "count", "learned numbers", 0.0, 1.0, is_metric=False)


@pytest.fixture(scope="module")
def figure(facts: RunFacts) -> Any:
    return draw(facts)


def test_every_named_mechanism_is_labelled(figure: Any, facts: RunFacts) -> None:
    labels = {text.get_text() for text in figure.axes[0].texts}
    assert {name for name, _ in facts.named} <= labels
    assert any(label.startswith("best") for label in labels)


def test_labels_do_not_overlap_and_stay_inside(figure: Any) -> None:
    renderer = figure.canvas.get_renderer()
    # Without the lines to their points.
    boxes = [super(type(t), t).get_window_extent(renderer) for t in figure.axes[0].texts]
    assert all(not a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert all(b.x0 >= 0 and b.x1 <= 1200 and b.y0 >= 0 and b.y1 <= 800 for b in boxes)


def test_axes_have_titles_and_units(figure: Any) -> None:
    (axes,) = figure.axes
    assert axes.get_ylabel() == "accuracy %: share got right"
    assert axes.get_xlabel() == "MACs: multiply-adds"
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert [entry.split(" (")[0] for entry in legend] == ["evaluated", "front", "named mechanisms"]


def test_caption_says_what_was_searched(figure: Any, facts: RunFacts) -> None:
    caption = figure.get_supxlabel()
    for words in ("attention_v2", "vit-cifar10", "seed 7", "mechanisms evaluated"):
        assert words in caption
    assert f"hypervolume {facts.hypervolume:.4f}" in caption


def test_stairs_climb_from_left_to_right(facts: RunFacts) -> None:
    accuracy, macs = facts.setup.objectives
    points = stairs(facts, macs, accuracy)
    assert points == sorted(points)
    corners = {position(member, macs, accuracy) for member in facts.members}
    assert corners == set(points[:-1]) or corners == set(points)


def test_error_bars_with_several_seeds(make_run: Callable[..., Path], tmp_path: Path) -> None:
    facts = read(make_run(tmp_path, repeats=2, generations=1))
    figure = draw(facts)
    (axes,) = figure.axes
    assert all(container.has_yerr for container in axes.containers)
    assert "standard error over 2 seeds" in figure.get_supxlabel()


@pytest.mark.parametrize("ending", ["svg", "pdf"])
def test_the_same_front_gives_the_same_file(facts: RunFacts, tmp_path: Path, ending: str) -> None:
    paths = [tmp_path / f"{name}.{ending}" for name in ("a", "b")]
    for path in paths:
        plot_front(facts, path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert sorted(tmp_path.iterdir()) == paths


def test_png_is_1200_by_800(facts: RunFacts, tmp_path: Path) -> None:
    from PIL import Image

    plot_front(facts, tmp_path / "new" / "front.PNG")
    with Image.open(tmp_path / "new" / "front.PNG") as image:
        assert image.size == (1200, 800)


def test_a_run_of_one_candidate_can_be_drawn(facts: RunFacts) -> None:
    alone = facts.members[:1]
    draw(dataclasses.replace(facts, candidates=alone, members=alone, names={}))


def test_costs_over_decades_get_a_logarithmic_axis(facts: RunFacts) -> None:
    first = facts.candidates[0]
    wide = dataclasses.replace(first, objectives={**first.objectives, "macs": 1e10})
    figure = draw(dataclasses.replace(facts, candidates=(*facts.candidates, wide)))
    assert figure.axes[0].get_xscale() == "log"


def test_three_objectives(facts: RunFacts) -> None:
    setup = dataclasses.replace(facts.setup, objectives=(*facts.setup.objectives, PARAMS))
    figure = draw(dataclasses.replace(facts, setup=setup))
    assert "also an objective: params" in figure.get_supxlabel()


def test_a_cost_goes_across_where_another_metric_is_minimised_too(facts: RunFacts) -> None:
    accuracy, macs = facts.setup.objectives
    loss = dataclasses.replace(accuracy, name="log_loss", direction="min", unit="nat")
    setup = dataclasses.replace(facts.setup, objectives=(accuracy, loss, macs))
    figure = draw(dataclasses.replace(facts, setup=setup))
    assert figure.axes[0].get_xlabel().startswith("MACs")


def test_another_ending_is_refused() -> None:
    with pytest.raises(RunError, match=r"front\.jpeg.*found the ending '\.jpeg'.*\.png"):
        check_plot(Path("front.jpeg"))
    with pytest.raises(RunError, match="'none'"):
        check_plot(Path("front"))


def test_a_place_that_cannot_be_written_is_an_error(facts: RunFacts, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="cannot be written"):
        plot_front(facts, tmp_path / "file" / "front.png")


def test_one_objective_is_no_picture(facts: RunFacts) -> None:
    setup = dataclasses.replace(facts.setup, objectives=facts.setup.objectives[:1])
    with pytest.raises(RunError, match="one objective, accuracy"):
        draw(dataclasses.replace(facts, setup=setup))
