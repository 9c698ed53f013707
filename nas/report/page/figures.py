"""Static figures of the page: the front, the confirmed mechanisms, and hypervolume over time.

``Scale`` is an axis of a figure. Each function ``*_figure`` returns the positions in pixels and the
texts from which a template in ``templates/`` draws the figure.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from nas.common.differences import Side
from nas.common.objectives import Objective
from nas.report.charts import LOGARITHMIC_FROM
from nas.report.front_chart import FrontAxes, axis_factor
from nas.report.run_view import FRESH, STANDARD, RunView
from nas.report.units import amount, header, human, points

if TYPE_CHECKING:
    Point = tuple[float, float]

WIDTH: Final = 1120.0
ROW_HEIGHT: Final = 34.0
MOST_MARKS: Final = 200
STEPS: Final = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """An axis of a figure, that is, a linear or logarithmic map from values to pixels.

    Attributes:
        low, high: smallest and largest value on the axis.
        start, end: pixels of ``low`` and ``high``.
        is_log: whether the map is logarithmic.
    """

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    @classmethod
    def over(
        cls, values: Iterable[float], start: float, end: float, *, may_be_log: bool = False
    ) -> Scale:
        """Return a scale over the range of the finite values, with a margin at each end.

        Args:
            start, end: pixels of the two ends.
            may_be_log: whether the scale is logarithmic if all values are positive and the largest
                is more than ``LOGARITHMIC_FROM`` times the smallest.
        """
        finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(finite), max(finite)
        if may_be_log and low > 0 and high / low > LOGARITHMIC_FROM:
            room = (high / low) ** 0.05
            return cls(low / room, high * room, start, end, True)
        room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
        return cls(low - room, high + room, start, end)

    def __call__(self, value: float) -> float:
        """Return the position of a value in pixels."""
        low, high = (math.log(v) if self.is_log else v for v in (self.low, self.high))
        at = math.log(value) if self.is_log else value
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self, count: int = 6) -> list[float]:
        """Return the values of the ticks.

        They are about ``count`` round values; on a logarithmic scale 1, 2 and 5 times each power
        of ten.
        """
        if self.is_log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            ticks = [step * 10.0**decade for decade in decades for step in STEPS[:3]]
        else:
            raw = (self.high - self.low) / count
            power = 10.0 ** math.floor(math.log10(raw))
            step = power * next(s for s in STEPS if s * power >= raw * 0.999)
            first = math.ceil(self.low / step)
            ticks = [i * step for i in range(first, first + 2 * count)]
        return [tick for tick in ticks if self.low <= tick <= self.high]


def tick_label(value: float) -> str:
    """Return the label of a tick at this value."""
    if abs(value) >= 1000:
        return human(value).replace(".00", "")
    return f"{value:.6g}".replace("-", "−")


def front_figure(views: Sequence[RunView]) -> dict[str, Any]:
    """Return the data of the static figure of all mechanisms by cost and metric.

    Mechanisms of the front and published mechanisms have marks, all other mechanisms dots. Lines
    mark the limits of the objectives, if they are on the axes. The axes
    show two objectives of the first run; runs without these objectives are not drawn.
    """
    axes = FrontAxes.of(views[0].setup.objectives)
    names = {axes.across.name, axes.up.name}
    shown = [c for c in views if names <= {o.name for o in c.setup.objectives}]
    values = [
        {key: axes.place(m.objectives) for key, m in view.trained.items() if m.objectives}
        for view in shown
    ]
    plotted = [point for by_key in values for point in by_key.values()]
    is_cost = axes.across.direction == "min"
    x = Scale.over((a for a, _ in plotted), 64, WIDTH - 20, may_be_log=is_cost)
    y = Scale.over((b for _, b in plotted), 470, 40)
    runs = []
    for view, by_key in zip(shown, values, strict=True):
        places = {key: (x(across), y(up)) for key, (across, up) in by_key.items()}
        keys = dict.fromkeys([*(member.key for member in view.members), *view.names])
        # Dots within three pixels of each other are drawn once.
        cells = {(round(a / 3), round(b / 3)): (a, b) for a, b in places.values()}
        stairs = [(x(across), y(up)) for across, up in axes.stairs(view.members)]
        path = [f"M{a:.1f} {b:.1f}" for a, b in stairs[:1]]
        runs.append(
            {
                "cloud": "".join(f"M{a:.0f} {b:.0f}h0" for a, b in cells.values()),
                "stairs": "".join(path + [f"H{a:.1f}V{b:.1f}" for a, b in stairs[1:]]),
                "marks": [_mark(view, axes, k, places[k], y) for k in keys if k in places],
            }
        )
    titles = [header(objective.name, objective.unit) for objective in (axes.across, axes.up)]
    limits = [
        scale(limit) if limit is not None and scale.low <= limit <= scale.high else None
        for scale, limit in zip((x, y), axes.limits(), strict=True)
    ]
    return {"x": x, "y": y, "width": WIDTH, "titles": titles, "runs": runs, "limits": limits}


def _mark(view: RunView, axes: FrontAxes, key: str, at: Point, y: Scale) -> dict[str, Any]:
    """Return the data of a mechanism's mark: position, error bar and mean in the confirmation.

    Args:
        key: key of the mechanism.
        at: position of the mark in pixels.
        y: vertical axis.
    """
    mechanism, name = view.trained[key], view.called(key)
    fresh = axes.fresh(view, mechanism)
    return {
        "x": at[0],
        "y": at[1],
        "half_bar": abs(y(axes.error(mechanism)) - y(0.0)),
        "fresh_y": y(fresh[0]) if fresh else None,
        "is_named": key in view.names,
        "name": name,
        "words": f"{name}: {mechanism.proposal.formula}",
    }


def confirmed_figure(view: RunView) -> dict[str, Any] | None:
    """Return the data of the figure of confirmed mechanisms; None if there are none.

    Confirmed mechanisms were trained again with seeds that the search never used. Each has a row
    with its mean in the search, estimate, mean over these seeds, and differences to standard
    attention.
    """
    metric, fresh = view.metric, view.fresh.get(FRESH["search"])
    if not fresh or metric is None:
        return None
    rows = [_row(view, metric, key) for key in fresh if key in view.trained]
    rows.sort(key=lambda row: float(row["mean"]), reverse=metric.direction == "max")
    gains = {title: _gains(view, metric, title, rows) for title in view.fresh}
    titles = [title for title in view.fresh if gains[title]]
    room = (WIDTH - 300) / (1 + len(titles) + 0.35)
    ends = [row["score"] for row in rows if row["score"] is not None]
    for name, error in (("mean", "mean_error"), ("estimate", "error")):
        known = [(row[name], row[error]) for row in rows if row[name] is not None]
        ends += [value + sign * spread for value, spread in known for sign in (-1, 1)]
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
        "x": Scale.over(ends, 160, 140 + 1.35 * room),
        "rows": rows,
        "panels": panels,
        "costs": f"{names} × {STANDARD}" if view.standard_key else "",
    }


def _row(view: RunView, metric: Objective, key: str) -> dict[str, Any]:
    """Return the data of a mechanism's row in the figure of confirmed mechanisms."""
    mechanism, unit = view.trained[key], axis_factor(metric)
    fresh = view.fresh[FRESH["search"]][key]
    mean = fresh.mean or 0.0
    # Both are unknown if a training of the search failed.
    score, estimate = mechanism.scores.get(metric.name), mechanism.objectives.get(metric.name)
    error = mechanism.errors.get(metric.name, 0.0)
    ratio = view.shares(mechanism)
    return {
        "key": key,
        "name": view.called(key),
        "digest": mechanism.digest,
        "is_named": key in view.names,
        "score": None if score is None else unit * score,
        "estimate": None if estimate is None else unit * estimate,
        "error": unit * error,
        "mean": unit * mean,
        "mean_error": unit * (fresh.error or 0.0),
        "words": (
            "" if score is None else f"score {amount(score, metric.unit)}",
            "" if estimate is None else f"estimate {amount(estimate, metric.unit, error)}",
            f"fresh {amount(mean, metric.unit, fresh.error)} ({fresh.seeds} seeds)",
        ),
        "costs": "   ".join(
            f"{ratio[o.name]:.2f}" if ratio[o.name] >= 0.01 else "<0.01"
            for o in view.setup.objectives
            if o.name in ratio
        ),
    }


def _gains(
    view: RunView, metric: Objective, title: str, rows: Sequence[dict[str, Any]]
) -> list[tuple[int, float, float, str, Side]]:
    """Return the mechanisms' differences to standard attention in one part of a confirmation.

    Args:
        title: the part, a key of ``RunView.fresh``.
        rows: rows of the figure of confirmed mechanisms.

    Returns:
        For each mechanism that has a difference its index in ``rows``, the mean and standard error
        of the difference in units of the axis, the difference and its side as text, and its side.
    """
    unit, gains = axis_factor(metric), []
    for place, row in enumerate(rows):
        if (lead := view.lead(title, row["key"])) is not None:
            text = f"{points(lead.mean, lead.error, metric.unit)}, {lead.verdict}"
            bar = unit * (lead.error or 0.0)
            gains.append((place, unit * lead.mean, bar, text, lead.verdict))
    return gains


def course_figure(views: Sequence[RunView], *, over_time: bool) -> dict[str, Any]:
    """Return the data of the figure of hypervolume after each generation, a line for each run.

    Args:
        over_time: whether the horizontal axis shows processor time of trainings in minutes instead
            of the number of trainings.
    """
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
    """Return the number of trainings and the hypervolume after each generation of a run.

    If ``over_time``, the trainings' processor time in minutes replaces their number.
    """
    work = sorted(
        (row.recorded, row.evaluation.core_seconds / 60 if over_time else 1)
        for row in view.trainings
    )
    moments, spent = [moment for moment, _ in work], [0.0, *accumulate(cost for _, cost in work)]
    return [
        (spent[bisect_right(moments, generation.finished)], generation.hypervolume)
        for generation in view.generations
    ]
