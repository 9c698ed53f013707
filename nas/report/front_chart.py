"""The chart of the fronts of one or several runs, in files, notebooks and on the report page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from nas.common.errors import RunError
from nas.common.objectives import Objective
from nas.common.pareto import non_dominated
from nas.common.text import plural, printable
from nas.report.charts import (
    BLUE,
    COLOURS,
    DIM,
    GREEN,
    GREY,
    HEIGHT,
    ORANGE,
    PAPER,
    WIDTH,
    ChartScale,
    styled,
)
from nas.report.result import data_frame
from nas.report.run_view import FRESH, RunView, task_and_data
from nas.report.units import FRACTION, header, quantity
from nas.store import Candidate

if TYPE_CHECKING:
    import altair

    Point = tuple[float, float]
    Rows = list[dict[str, Any]]

SCORES, AGAIN, FRONT, NAMED = (
    "every other mechanism", "mean over fresh seeds", "front", "named mechanisms",
)  # fmt: skip
MARKS: Final = {  # colour, shape and area in square pixels; the last are drawn on top
    SCORES: (GREY, "circle", 22),
    AGAIN: (GREEN, "square", 27),
    FRONT: (BLUE, "circle", 90),
    NAMED: (ORANGE, "diamond", 100),
}
# Places of a label around its point: distances in pixels, and directions, preferred ones first.
DISTANCES: Final = (9.0, 15.0, 22.0, 32.0)
ANGLES: Final = (0, 180, 45, -45, 135, -135, 90, -90, 20, -20, 160, -160, 65, -65, 115, -115)
LETTER, LINE = 6.5, 13.0  # width and height of a letter of a label, in pixels
NARROW: Final = 500  # pixels, below which titles are short and labels few
FEW: Final = 4


@dataclass(frozen=True)
class FrontAxes:
    """The two axes of a chart of mechanisms; coordinates of fractions are in per cent.

    The first cost is ``across``, the first metric is ``up``; without one, another objective is.
    """

    across: Objective
    up: Objective

    @classmethod
    def of(cls, objectives: Sequence[Objective]) -> FrontAxes:
        """Return the axes for the chart of a run with these objectives."""
        up = next((o for o in objectives if o.is_metric), objectives[0])
        others = [o for o in objectives if o is not up] or [up]
        return cls(min(others, key=lambda o: (o.is_metric, o.direction != "min")), up)

    def place(self, values: Mapping[str, float]) -> Point:
        """Return the coordinates of a mechanism with these values of the objectives."""
        across, up = self.across, self.up
        return _factor(across) * values[across.name], _factor(up) * values[up.name]

    def stairs(self, candidates: Sequence[Candidate], end: float) -> list[Point]:
        """Return the coordinates of the mechanisms that none dominates on the axes, up to ``end``.

        The list is empty unless ``across`` is minimised and ``up`` is maximised.
        """
        if (self.across.direction, self.up.direction) != ("min", "max"):
            return []
        places = sorted({self.place(candidate.objectives) for candidate in candidates})
        stairs = [places[i] for i in non_dominated([(x, -y) for x, y in places])]
        return [*stairs, (end, stairs[-1][1])] if stairs else []


def front_chart(
    *views: RunView, width: int = WIDTH, link: Callable[[RunView, Candidate], str] | None = None
) -> altair.LayerChart:
    """Return the chart of the fronts of runs by the first run's first metric and first cost.

    Grey dots are scores (means of a mechanism's own trainings). Mechanisms of the front and named
    mechanisms are at their estimates, with bars of one standard error. All mechanisms to the right
    of the staircase and below it are dominated. Runs without the two objectives are left out; if
    the first run has one objective, RunError is raised. A narrow chart has short titles and few
    labels. ``link`` returns the address that a click on a mechanism opens.
    """
    import altair as alt

    objectives = views[0].setup.objectives
    if len(objectives) < 2:
        raise RunError(
            f"run {views[0].name!r} has one objective, {objectives[0].name}; a picture of a "
            "front needs two."
        )
    axes = FrontAxes.of(objectives)
    names = {axes.across.name, axes.up.name}
    shown = [view for view in views if names <= {o.name for o in view.setup.objectives}]
    rows = [row for view in shown for row in _front_rows(view, axes, link)]
    if not rows:
        raise RunError(f"run {views[0].name!r} has no trained mechanism to draw.")
    is_narrow = width < NARROW
    x = ChartScale.of([row["x"] for row in rows], width, may_be_log=True)
    y = ChartScale.of([row[end] for row in rows for end in ("low", "high")], HEIGHT)
    across = alt.X("x:Q", scale=x.scale(), axis=x.axis(_title(axes.across, is_narrow)))
    above = {"titleAngle": 0, "titleAlign": "left", "titleBaseline": "bottom", "titleX": -30}
    upwards = y.axis(_title(axes.up, is_narrow), titleY=-10, **above)
    up = alt.Y("y:Q", scale=y.scale(), axis=upwards)
    stairs = [axes.stairs(view.members, x.high) for view in shown]

    field, colours = "series", {series: mark[0] for series, mark in MARKS.items()}
    if len(shown) > 1:
        field, colours = "run", dict(zip((view.name for view in shown), COLOURS, strict=False))
    beside = len(shown) > 1  # a legend of the runs is beside that of the shapes
    key = alt.Legend(
        orient="bottom",
        columns=(1 if beside else 2) if is_narrow else 4,
        columnPadding=26,
        padding=10 if beside else 0,
        symbolSize=70,
    )
    scale = alt.Scale(domain=[*colours], range=[*colours.values()])
    colour = alt.Color(f"{field}:N", scale=scale, title=None, legend=key)
    shapes = alt.Scale(domain=[*MARKS], range=[mark[1] for mark in MARKS.values()])
    plain = {} if field == "series" else {"symbolFillColor": DIM, "symbolStrokeWidth": 0}
    shape = alt.Shape(
        "series:N", scale=shapes, title=None, legend=alt.Legend(**(key.to_dict() | plain))
    )

    points = alt.Chart(data_frame(rows)).encode(x=across, y=up)
    bars = alt.Chart(data_frame([row for row in rows if row["low"] < row["high"]]))
    tooltip = [alt.Tooltip(f"{name}:N") for name in ("mechanism", "formula", "up", "across")]
    target = {"href": "link:N"} if link else {}
    layers = [
        *(
            alt.Chart(data_frame({"x": a, "y": b} for a, b in steps))
            .mark_line(
                interpolate="step-after", color=colours.get(view.name, BLUE), strokeWidth=1.5
            )
            .encode(x=across, y=up)
            for view, steps in zip(shown, stairs, strict=True)
        ),
        bars.mark_rule().encode(x=across, y="low:Q", y2="high:Q", color=colour),
        points.mark_point(filled=True, opacity=1, stroke=PAPER, strokeWidth=0.7).encode(
            color=colour, shape=shape, size=alt.Size("area:Q", scale=None)
        ),
        *_limit_rules(axes, x, y),
        *_labels(_wanted(shown, axes)[: FEW if is_narrow else None], stairs, rows, x, y, colour),
        # Larger invisible marks are easier to point at.
        points.mark_point(filled=True, size=130, opacity=0).encode(tooltip=tooltip, **target),
    ]
    chart = alt.layer(*layers).properties(width=width, height=HEIGHT)
    title = f"{shown[0].setup.space.name} · {task_and_data(shown[0].setup)}"
    return styled(chart, title, " · ".join(_caption(shown, axes)))


def _front_rows(
    view: RunView, axes: FrontAxes, link: Callable[[RunView, Candidate], str] | None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each mark: scores, means over fresh seeds, front, then named mechanisms."""
    up, factor = axes.up, _factor(axes.up)

    def row(candidate: Candidate, series: str, value: float, error: float) -> dict[str, Any]:
        return {
            "x": axes.place(candidate.objectives)[0],
            "y": factor * value,
            "low": factor * (value - error),
            "high": factor * (value + error),
            "series": series,
            "area": MARKS[series][2],
            "run": view.name,
            "mechanism": printable(view.called(candidate)),
            "formula": printable(candidate.proposal.formula),
            "up": f"{header(up.name)} {quantity(value, up.unit, error or None)}",
            "across": quantity(candidate.objectives[axes.across.name], axes.across.unit),
        } | ({"link": link(view, candidate)} if link else {})

    for candidate in view.candidates:
        values = {**candidate.objectives, **candidate.scores}
        yield row(candidate, SCORES, values[up.name], 0.0)
    named = [candidate for _, candidate in view.named]
    is_up = view.metric is not None and view.metric.name == up.name
    fresh = view.means.get(FRESH["search"], {}) if is_up else {}
    for candidate in {c.digest: c for c in (*view.members, *named)}.values():
        cell = fresh.get(candidate.key)
        if cell is not None and cell.mean is not None:
            yield row(candidate, AGAIN, cell.mean, cell.error or 0.0)
    for series, shown in ((FRONT, view.members), (NAMED, named)):
        for candidate in shown:
            error = candidate.errors.get(up.name, 0.0)
            yield row(candidate, series, candidate.objectives[up.name], error)


def _limit_rules(axes: FrontAxes, x: ChartScale, y: ChartScale) -> Iterator[Any]:
    """Yield a dashed line with its name for each limit; mechanisms beyond it are in no front."""
    import altair as alt

    for axis, objective in (("x", axes.across), ("y", axes.up)):
        if objective.limit is None:
            continue
        limit = _factor(objective) * objective.limit
        if axis == "x":
            side = "left" if x.pixels(limit) < x.length / 2 else "right"
            style = {"align": side, "baseline": "bottom", "dx": 5 if side == "left" else -5}
            place = {"x": alt.X("limit:Q"), "y": alt.value(y.length - 3)}
        else:
            style = {"align": "right", "baseline": "bottom", "dy": -3}
            place = {"x": alt.value(x.length), "y": alt.Y("limit:Q")}
        text = f"limit {quantity(objective.corner, objective.unit)}"
        rule = alt.Chart(data_frame([{"limit": limit, "text": text}]))
        yield rule.mark_rule(strokeDash=[4, 3], color=DIM).encode(**{axis: place[axis]})
        yield from _written(rule.encode(**place, text="text:N"), alt.value(DIM), style)


def _wanted(views: Sequence[RunView], axes: FrontAxes) -> Rows:
    """Return labels: best, knee and cheapest members of the fronts, then named mechanisms."""
    rows = []
    for view in views:
        members = {member.digest: member for member in view.members}
        labels = [
            (members[digest], FRONT, f"{', '.join(titles)}: {view.called(members[digest])}")
            for digest, titles in view.titles.items()
        ]
        labels += [(c, NAMED, name) for name, c in view.named if c.digest not in view.titles]
        for candidate, series, text in labels:
            x, y = axes.place(candidate.objectives)
            row = {"x": x, "y": y, "text": printable(text), "series": series, "run": view.name}
            rows.append(row)
    return rows


def _labels(
    wanted: Rows,
    stairs: Sequence[Sequence[Point]],
    rows: Rows,
    x: ChartScale,
    y: ChartScale,
    colour: Any,
) -> Iterator[Any]:
    """Yield labels that overlap no other label; those without a free place are left out."""
    import altair as alt

    def pixels(left: float, up: float) -> Point:
        return x.pixels(left), y.length - y.pixels(up)

    marks = [pixels(row["x"], row["y"]) for row in rows]
    for steps in stairs:  # labels avoid the staircase, too
        corners = [pixels(left, up) for left, up in steps]
        for (left, low), (right, high) in pairwise(corners):
            marks += [(left + 12 * i, low) for i in range(int(right - left) // 12)]
            marks += [(right, low - 12 * i) for i in range(int(low - high) // 12)]
    taken: list[tuple[float, float, float]] = []  # centres and half widths
    placed = []
    for label in wanted:
        at = pixels(label["x"], label["y"])
        half = LETTER * len(label["text"]) / 2
        place = _place(at, half, marks, taken, (x.length, y.length))
        if place is not None:
            taken.append((*place, half))
            placed.append({**label, "dx": place[0] - at[0], "dy": place[1] - at[1]})
    texts = alt.Chart(data_frame(placed)).encode(x="x:Q", y="y:Q", text="text:N")
    yield from _written(texts, colour, {"dx": alt.expr("datum.dx"), "dy": alt.expr("datum.dy")})


def _written(texts: Any, colour: Any, style: Mapping[str, Any]) -> Iterator[Any]:
    style = {"fontSize": 11, **style}
    yield texts.mark_text(stroke=PAPER, strokeWidth=3, strokeOpacity=0.85, **style)
    yield texts.mark_text(**style).encode(color=colour)


def _place(
    at: Point,
    half: float,
    marks: Sequence[Point],
    taken: Sequence[tuple[float, float, float]],
    size: Point,
) -> Point | None:
    """Return a centre for a label near ``at`` that meets no ``taken`` label and few ``marks``."""
    distances, angles = map(np.ravel, np.meshgrid(DISTANCES, np.radians(ANGLES), indexing="ij"))
    x = at[0] + np.cos(angles) * (distances + half)
    y = at[1] - np.sin(angles) * (distances + LINE / 2)
    is_free = (half < x) & (x < size[0] - half) & (y > LINE) & (y < size[1] - LINE)
    cost = distances.copy()
    for left, up, reach in taken:
        is_free &= (abs(x - left) >= half + reach + 4) | (abs(y - up) >= LINE)
    for left, up in marks:
        cost += 15 * ((abs(x - left) < half + 5) & (abs(y - up) < LINE / 2 + 5))
    best = np.where(is_free, cost, np.inf).argmin()
    return (float(x[best]), float(y[best])) if is_free[best] else None


def _factor(objective: Objective) -> float:
    return 100.0 if objective.unit == FRACTION else 1.0


def _title(objective: Objective, is_narrow: bool) -> str:
    about = "" if is_narrow else objective.about.rstrip(".")
    return ": ".join(filter(None, (header(objective.name, objective.unit), about)))


def _caption(views: Sequence[RunView], axes: FrontAxes) -> Iterator[str]:
    view, setup = views[0], views[0].setup
    if len(views) == 1:
        yield f"seed {setup.config.seed}"
        yield f"{plural(view.counts.evaluated, 'mechanism')} evaluated"
        yield f"hypervolume {view.hypervolume:.4f}"
    if any(member.errors for member in view.members):
        yield "bars: standard errors"
    if len(setup.objectives) > 2:
        others = [o.name for o in setup.objectives if o not in (axes.across, axes.up)]
        yield f"also an objective: {', '.join(others)}"
