"""Tables and figures say of a difference what the test says: each sign, mark and colour is true."""

from __future__ import annotations

import numpy as np
import pytest

from nas.common.objectives import Metric
from nas.report.front_columns import mark
from nas.report.page.figures import confirmed_figure
from nas.report.page.rendering import render
from nas.report.run_view import RunView
from nas.report.trials import trial_table
from tests.recorded_run import CONFIRMED

from .claims import side_by_scipy
from .conftest import Printed, read
from .test_benchmark import trainings
from .test_trials import result
from .test_verdict import alone, drawn, fail

ACCURACY = Metric("accuracy", "fraction", "max", 0.1, 1.0)
BITS = Metric("bits", "bit", "min", 5.0, 0.0)
Scores = dict[str, list[float | None]]
SEEDS = range(4)


@pytest.fixture(scope="module")
def example() -> RunView:
    return read(CONFIRMED)


def drawn_scores(rng: np.random.Generator) -> Scores:
    """Scores of a reference and five mechanisms at equal seeds; one training in twelve failed."""
    seeds = int(rng.integers(1, 6))
    base = rng.normal(0.5, 0.05, seeds)
    names = ["mha", *(f"m{i}" for i in range(5))]
    rows = [base, *(base + rng.normal(rng.normal(0, 0.03), 0.01, seeds) for _ in names[1:])]
    return {
        name: [None if rng.random() < 1 / 12 else float(value) for value in row]
        for name, row in zip(names, rows, strict=True)
    }


@pytest.mark.parametrize("metric", [ACCURACY, BITS], ids=["max", "min"])
@pytest.mark.parametrize("seed", SEEDS)
def test_evaluate_marks_the_undecided_and_compares_no_failed(
    pipe: Printed, metric: Metric, seed: int
) -> None:
    scores = drawn_scores(np.random.default_rng(seed))
    trial_table(pipe.console, result(*trainings(scores, metric)))
    title = pipe.lines[0].index("over mha") + len("over mha")
    start = pipe.lines[0].index(" over mha") - 18
    rows = {line.split()[0]: line[max(start, 0) : title + 2] for line in pipe.lines if line}
    for name, own in scores.items():
        side = side_by_scipy(own, scores["mha"], metric.direction)
        is_compared = side is not None and name != "mha"
        assert ("?" in rows[name]) == (is_compared and side == "undecided")
    assert "undecided, which is not equal" in pipe.text


@pytest.mark.parametrize("seed", SEEDS)
def test_page_colours_a_difference_by_its_side(example: RunView, seed: int) -> None:
    rng = np.random.default_rng(seed)
    view, gains = drawn(alone(example), rng)
    failing = str(rng.choice([*gains]))
    view = fail(view, failing, 0)
    figure = confirmed_figure(view)
    assert figure is not None
    shown = {
        figure["rows"][place]["key"]: side
        for p in figure["panels"]
        for place, *_, side in p["gains"]
    }
    count = max(map(len, gains.values()))
    base = [0.36] * count
    assert failing not in shown
    for key in gains.keys() - {failing}:
        assert shown[key] == side_by_scipy([0.36 + g for g in gains[key]], base)
    html = render("confirmed.html", confirmed=[figure], benchmarks=[], views=[view])
    for side in ("better", "worse", "undecided"):
        assert html.count(f'class="mark square {side}"') == [*shown.values()].count(side)


def test_column_named_does_not_name_the_control_as_dominated(example: RunView) -> None:
    """All members that dominate ``uniform``; some dominate nothing else."""
    beating = [m for m in example.members if "uniform" in example.dominated_by(m)]
    texts = [mark(example, member) for member in beating]
    assert beating
    assert not [text for text in texts if "uniform" in text]
    assert "" in texts
