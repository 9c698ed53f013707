"""The drawings that need no script: the front, means over fresh seeds, hypervolume.

Each function returns the positions and words that a template draws (``templates/``).
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from nas.common.differences import mean_and_error
from nas.common.pareto import non_dominated
from nas.report.page.scale import Scale
from nas.report.run_view import FRESH, STANDARD
from nas.report.trials import points
from nas.report.units import FRACTION, amount, header

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nas.common.objectives import Objective
    from nas.report.run_view import Mechanism, RunView

    Axes = tuple[Objective, Objective]
    Point = tuple[float, float]

WIDTH: Final = 1120.0
ROW_HEIGHT: Final = 34.0
MOST_MARKS: Final = 200


def factor(objective: Objective) -> float:
    """The factor from values to an axis: fractions are shown in per cent."""
    return 100.0 if objective.unit == FRACTION else 1.0


def axes_of(objectives: Sequence[Objective]) -> Axes:
    """The first cost, if there is one, goes across, and the first metric up."""
    up = next((o for o in objectives if o.is_metric), objectives[0])
    others = [o for o in objectives if o is not up] or [up]
    return min(others, key=lambda o: (o.is_metric, o.direction != "min")), up


def front_figure(contents: Sequence[RunView]) -> dict[str, Any]:
    """All mechanisms over the first run's first cost and metric; fronts and named ones marked."""
    axes = axes_of(contents[0].setup.objectives)
    names = {objective.name for objective in axes}
    shown = [c for c in contents if names <= {o.name for o in c.setup.objectives}]
    values = [{key: _point(m, axes) for key, m in c.trained.items()} for c in shown]
    known = [point for run in values for point in run.values() if point]
    x = Scale.over((a for a, _ in known), 64, WIDTH - 20, may_be_log=axes[0].direction == "min")
    y = Scale.over((b for _, b in known), 470, 40)
    runs = []
    for content, own in zip(shown, values, strict=True):
        places = {key: (x(point[0]), y(point[1])) for key, point in own.items() if point}
        members = [str(member.proposal.key) for member in content.members]
        marked = [key for key in dict.fromkeys([*members, *content.names]) if key in places]
        runs.append(
            {
                "cloud": _dots(places.values()),
                "stairs": _stairs([places[key] for key in members], axes),
                "marks": [_mark(content, key, places[key], y) for key in marked],
            }
        )
    titles = [header(objective.name, objective.unit) for objective in axes]
    return {"x": x, "y": y, "width": WIDTH, "titles": titles, "runs": runs}


def _point(mechanism: Mechanism, axes: Axes) -> Point | None:
    """A mechanism's values by estimate; None while it has no result."""
    values = mechanism.objectives
    if not values:
        return None
    across, up = (factor(objective) * values[objective.name] for objective in axes)
    return across, up


def _dots(places: Iterable[Point]) -> str:
    """Many dots as one path; of dots that cover each other, one."""
    cells = {(round(x / 3), round(y / 3)): (x, y) for x, y in places}
    return "".join(f"M{x:.0f} {y:.0f}h0" for x, y in cells.values())


def _stairs(places: Sequence[Point], axes: Axes) -> str:
    """The staircase through the members that no other beats in these two; pixels grow down."""
    if [o.direction for o in axes] != ["min", "max"] or not places:
        return ""
    (x, y), *others = sorted({places[i] for i in non_dominated(places)})
    return f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in others)


def _mark(content: RunView, key: str, at: Point, y: Scale) -> dict[str, Any]:
    """A member of the front or a named mechanism, its error bar and its fresh mean."""
    mechanism, metric = content.trained[key], content.metric
    is_estimated = mechanism.is_estimated
    error = mechanism.errors.get(metric.name, 0.0) if is_estimated and metric else 0.0
    fresh = content.spread(FRESH["search"], key) if metric else None
    name = content.called(key)
    return {
        "x": at[0],
        "y": at[1],
        "half_bar": abs(y(factor(metric) * error) - y(0.0)) if metric else 0.0,
        "fresh_y": y(factor(metric) * fresh[0]) if fresh and metric else None,
        "is_named": key in content.names,
        "name": name,
        "words": f"{name}: {mechanism.proposal.formula}",
    }


def confirmed_figure(content: RunView) -> dict[str, Any] | None:
    """A row for each mechanism with fresh seeds: score, estimate, fresh mean, then leads."""
    metric, fresh = content.metric, content.fresh.get(FRESH["search"])
    if not fresh or metric is None:
        return None
    rows = [_row(content, metric, key) for key in fresh if key in content.trained]
    rows.sort(key=lambda row: float(row["mean"]), reverse=metric.direction == "max")
    gains = {title: _gains(content, metric, title, rows) for title in content.fresh}
    titles = [title for title in content.fresh if gains[title]]
    room = (WIDTH - 300) / (1 + len(titles) + 0.35)
    ends = [
        row[name] + sign * row[error]
        for row in rows
        for sign in (-1, 1)
        for name, error in (("mean", "mean_error"), ("estimate", "error"))
    ]
    panels = []
    for number, title in enumerate(titles):
        start = 180 + (1.35 + number) * room
        values = [gain[1] + sign * gain[2] for gain in gains[title] for sign in (-1, 1)]
        scale = Scale.over([*values, 0.0], start, start + room - 60)
        panels.append({"title": title, "x": scale, "gains": gains[title]})
    costs = [header(o.name) for o in content.setup.objectives if not o.is_metric]
    names = ", ".join(name.removesuffix(" ms") for name in costs)
    return {
        "run": content.name,
        "width": WIDTH,
        "height": ROW_HEIGHT,
        "bottom": 46 + ROW_HEIGHT * len(rows),
        "title": header(metric.name, metric.unit),
        "x": Scale.over([*ends, *(row["score"] for row in rows)], 160, 140 + 1.35 * room),
        "rows": rows,
        "panels": panels,
        "costs": f"{names} × {STANDARD}" if content.standard_key else "",
    }


def _row(content: RunView, metric: Objective, key: str) -> dict[str, Any]:
    """The three numbers of a mechanism, on the axis and in words, and its costs."""
    mechanism, unit = content.trained[key], factor(metric)
    found = content.spread(FRESH["search"], key)
    assert found is not None
    mean, mean_error, seeds = found
    score = mechanism.scores.get(metric.name, float("nan"))
    estimate = mechanism.objectives.get(metric.name, score)
    error = mechanism.errors.get(metric.name, 0.0) if mechanism.is_estimated else 0.0
    ratio = content.shares(content.trained[key])
    return {
        "key": key,
        "name": content.called(key),
        "digest": mechanism.digest,
        "is_named": key in content.names,
        "score": unit * score,
        "estimate": unit * estimate,
        "error": unit * error,
        "mean": unit * mean,
        "mean_error": unit * (mean_error or 0.0),
        "words": (
            f"score {amount(score, metric.unit)}",
            f"estimate {amount(estimate, metric.unit, error)}",
            f"fresh {amount(mean, metric.unit, mean_error)} ({seeds} seeds)",
        ),
        "costs": "   ".join(
            f"{ratio[o.name]:.2f}" if ratio[o.name] >= 0.01 else "<0.01"
            for o in content.setup.objectives
            if o.name in ratio
        ),
    }


def _gains(
    content: RunView, metric: Objective, title: str, rows: Sequence[dict[str, Any]]
) -> list[tuple[int, float, float, str]]:
    """Leads over standard attention: row, mean and standard error on the axis, words."""
    unit, leads = factor(metric), []
    for place, row in enumerate(rows):
        values = content.gains(title, row["key"])
        if values and row["key"] != content.standard_key:
            mean, error = mean_and_error(values)
            leads.append(
                (place, unit * mean, unit * (error or 0.0), points(mean, error, metric.unit))
            )
    return leads


def course_figure(contents: Sequence[RunView], *, over_time: bool) -> dict[str, Any]:
    """Hypervolume after each generation, over trainings or over their core-minutes."""
    courses = [_course(content, over_time=over_time) for content in contents]
    known = [point for course in courses for point in course]
    x = Scale.over([0.0, *(a for a, _ in known)], 56, 540)
    y = Scale.over([b for _, b in known], 262, 40)
    title = "core-minutes of training" if over_time else "trainings"
    runs = []
    for course in courses:
        marks = [(x(a), y(b), f"{a:.0f} {title}: {b:.4f}") for a, b in course]
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b, _ in marks)
        runs.append((f"M{path}" if path else "", marks if len(marks) <= MOST_MARKS else []))
    return {"x": x, "y": y, "title": title, "runs": runs}


def _course(content: RunView, *, over_time: bool) -> list[Point]:
    """Work done and hypervolume after each generation."""
    work = sorted(
        (one.recorded, one.evaluation.core_seconds / 60 if over_time else 1)
        for one in content.trainings
    )
    moments, spent = [moment for moment, _ in work], [0.0, *accumulate(one for _, one in work)]
    return [
        (spent[bisect_right(moments, generation.finished)], generation.hypervolume)
        for generation in content.generations
    ]
