"""Static drawings: the front, means over fresh seeds, hypervolume.

Each function returns the positions and words that a template draws (``templates/``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from nas.common.differences import mean_and_error
from nas.common.objectives import Objective
from nas.common.pareto import non_dominated
from nas.report.page.scale import Scale
from nas.report.plot import axes_of, axis_factor
from nas.report.run_view import FRESH, STANDARD, RunView
from nas.report.trials import points
from nas.report.units import amount, header
from nas.store import Candidate

if TYPE_CHECKING:
    Axes = tuple[Objective, Objective]
    Point = tuple[float, float]

WIDTH: Final = 1120.0
ROW_HEIGHT: Final = 34.0
MOST_MARKS: Final = 200


def front_figure(views: Sequence[RunView]) -> dict[str, Any]:
    """All mechanisms by the first run's first cost and metric, with marks for fronts and names."""
    axes = axes_of(views[0].setup.objectives)
    names = {objective.name for objective in axes}
    shown = [c for c in views if names <= {o.name for o in c.setup.objectives}]
    values = [{key: _point(m, axes) for key, m in c.trained.items()} for c in shown]
    plotted = [point for run in values for point in run.values() if point]
    x = Scale.over((a for a, _ in plotted), 64, WIDTH - 20, may_be_log=axes[0].direction == "min")
    y = Scale.over((b for _, b in plotted), 470, 40)
    runs = []
    for view, by_key in zip(shown, values, strict=True):
        places = {key: (x(point[0]), y(point[1])) for key, point in by_key.items() if point}
        members = [member.key for member in view.members]
        marked = [key for key in dict.fromkeys([*members, *view.names]) if key in places]
        runs.append(
            {
                "cloud": _dots(places.values()),
                "stairs": _stairs([places[key] for key in members], axes),
                "marks": [_mark(view, key, places[key], y) for key in marked],
            }
        )
    titles = [header(objective.name, objective.unit) for objective in axes]
    return {"x": x, "y": y, "width": WIDTH, "titles": titles, "runs": runs}


def _point(mechanism: Candidate, axes: Axes) -> Point | None:
    """A mechanism's estimates on both axes; None if it has no result."""
    if not mechanism.objectives:
        return None
    across, up = (axis_factor(o) * mechanism.objectives[o.name] for o in axes)
    return across, up


def _dots(places: Iterable[Point]) -> str:
    """All dots as one SVG path; dots within three pixels of each other are drawn once."""
    cells = {(round(x / 3), round(y / 3)): (x, y) for x, y in places}
    return "".join(f"M{x:.0f} {y:.0f}h0" for x, y in cells.values())


def _stairs(places: Sequence[Point], axes: Axes) -> str:
    """The staircase through the members that are non-dominated on these axes, in pixels."""
    if [o.direction for o in axes] != ["min", "max"] or not places:
        return ""
    (x, y), *others = sorted({places[i] for i in non_dominated(places)})
    return f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in others)


def _mark(view: RunView, key: str, at: Point, y: Scale) -> dict[str, Any]:
    """A member of the front or a named mechanism, its error bar and its fresh mean."""
    mechanism, metric = view.trained[key], view.metric
    error = mechanism.errors.get(metric.name, 0.0) if metric else 0.0
    fresh = view.spread(FRESH["search"], key)
    name = view.called(key)
    return {
        "x": at[0],
        "y": at[1],
        "half_bar": abs(y(axis_factor(metric) * error) - y(0.0)) if metric else 0.0,
        "fresh_y": y(axis_factor(metric) * fresh.mean) if fresh and metric else None,
        "is_named": key in view.names,
        "name": name,
        "words": f"{name}: {mechanism.proposal.formula}",
    }


def confirmed_figure(view: RunView) -> dict[str, Any] | None:
    """Scores, estimates, fresh means and leads of confirmed mechanisms; None without any."""
    metric, fresh = view.metric, view.fresh.get(FRESH["search"])
    if not fresh or metric is None:
        return None
    rows = [_row(view, metric, key) for key in fresh if key in view.trained]
    rows.sort(key=lambda row: float(row["mean"]), reverse=metric.direction == "max")
    gains = {title: _gains(view, metric, title, rows) for title in view.fresh}
    titles = [title for title in view.fresh if gains[title]]
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
    costs = [header(o.name) for o in view.setup.objectives if not o.is_metric]
    names = ", ".join(name.removesuffix(" ms") for name in costs)
    return {
        "run": view.name,
        "width": WIDTH,
        "height": ROW_HEIGHT,
        "bottom": 46 + ROW_HEIGHT * len(rows),
        "title": header(metric.name, metric.unit),
        "x": Scale.over([*ends, *(row["score"] for row in rows)], 160, 140 + 1.35 * room),
        "rows": rows,
        "panels": panels,
        "costs": f"{names} × {STANDARD}" if view.standard_key else "",
    }


def _row(view: RunView, metric: Objective, key: str) -> dict[str, Any]:
    """Score, estimate and fresh mean of a mechanism as values and texts, and its costs."""
    mechanism, unit = view.trained[key], axis_factor(metric)
    fresh = view.spread(FRESH["search"], key)
    assert fresh is not None
    score = mechanism.scores.get(metric.name, float("nan"))
    estimate = mechanism.objectives.get(metric.name, score)
    error = mechanism.errors.get(metric.name, 0.0)
    ratio = view.shares(mechanism)
    return {
        "key": key,
        "name": view.called(key),
        "digest": mechanism.digest,
        "is_named": key in view.names,
        "score": unit * score,
        "estimate": unit * estimate,
        "error": unit * error,
        "mean": unit * fresh.mean,
        "mean_error": unit * (fresh.error or 0.0),
        "words": (
            f"score {amount(score, metric.unit)}",
            f"estimate {amount(estimate, metric.unit, error)}",
            f"fresh {amount(fresh.mean, metric.unit, fresh.error)} ({fresh.seeds} seeds)",
        ),
        "costs": "   ".join(
            f"{ratio[o.name]:.2f}" if ratio[o.name] >= 0.01 else "<0.01"
            for o in view.setup.objectives
            if o.name in ratio
        ),
    }


def _gains(
    view: RunView, metric: Objective, title: str, rows: Sequence[dict[str, Any]]
) -> list[tuple[int, float, float, str]]:
    """Leads over standard attention: row index, mean and standard error as plotted, text."""
    unit, leads = axis_factor(metric), []
    for place, row in enumerate(rows):
        values = view.gains(title, row["key"])
        if values and row["key"] != view.standard_key:
            mean, error = mean_and_error(values)
            leads.append(
                (place, unit * mean, unit * (error or 0.0), points(mean, error, metric.unit))
            )
    return leads


def course_figure(views: Sequence[RunView], *, over_time: bool) -> dict[str, Any]:
    """Hypervolume after each generation, over trainings or over their core-minutes."""
    courses = [_course(view, over_time=over_time) for view in views]
    x = Scale.over([0.0, *(a for course in courses for a, _ in course)], 56, 540)
    y = Scale.over([b for course in courses for _, b in course], 262, 40)
    title = "core-minutes of training" if over_time else "trainings"
    runs = []
    for course in courses:
        marks = [(x(a), y(b), f"{a:.0f} {title}: {b:.4f}") for a, b in course]
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b, _ in marks)
        runs.append((f"M{path}" if path else "", marks if len(marks) <= MOST_MARKS else []))
    return {"x": x, "y": y, "title": title, "runs": runs}


def _course(view: RunView, *, over_time: bool) -> list[Point]:
    """Trainings or core-minutes so far, and hypervolume, after each generation."""
    work = sorted(
        (row.recorded, row.evaluation.core_seconds / 60 if over_time else 1)
        for row in view.trainings
    )
    moments, spent = [moment for moment, _ in work], [0.0, *accumulate(cost for _, cost in work)]
    return [
        (spent[bisect_right(moments, generation.finished)], generation.hypervolume)
        for generation in view.generations
    ]
