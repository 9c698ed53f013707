"""The chart of a run's front, and the axes that it shares with the page's static figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from nas.common.errors import RunError
from nas.common.objectives import Objective
from nas.common.pareto import non_dominated
from nas.common.text import plural
from nas.report.charts import (
    BLUE,
    DIM,
    GREEN,
    GREY,
    HEIGHT,
    ORANGE,
    WIDTH,
    ChartScale,
    chart_data,
    styled,
)
from nas.report.run_view import FRESH, RunView, task_and_data
from nas.report.units import FRACTION, header, quantity
from nas.store import Candidate

if TYPE_CHECKING:
    import altair

    Point = tuple[float, float]
    Rows = Sequence[Mapping[str, Any]]

SCORES, FRONT, NAMED, AGAIN = "scores", "front", "named mechanisms", "fresh seeds"
MARKS: Final = {  # colour, shape and area in square pixels
    "scores": (GREY, "circle", 18),
    "front": (BLUE, "circle", 90),
    "named mechanisms": (ORANGE, "diamond", 100),
    "fresh seeds": (GREEN, "square", 45),
}
# Places of a label around its point: distances in pixels, and directions, preferred ones first.
DISTANCES: Final = (9.0, 16.0, 25.0, 38.0, 55.0, 80.0)
ANGLES: Final = (0, 180, 45, -45, 135, -135, 90, -90, 20, -20, 160, -160, 65, -65, 115, -115)
LETTER, LINE = 6.1, 13.0  # width and height of a letter of a label, in pixels


@dataclass(frozen=True)
class FrontAxes:
    """The two axes of a chart of mechanisms; coordinates of fractions are in per cent.

    Attributes:
        across: objective on the horizontal axis: the first cost, or without a cost an objective.
        up: objective on the vertical axis: the first metric, or without a metric an objective.
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
        return axis_factor(across) * values[across.name], axis_factor(up) * values[up.name]

    def error(self, candidate: Candidate) -> float:
        """Return the standard error of a mechanism's vertical coordinate, in units of the axis."""
        return axis_factor(self.up) * candidate.errors.get(self.up.name, 0.0)

    def fresh(self, view: RunView, candidate: Candidate) -> Point | None:
        """Return a mechanism's mean over fresh seeds, as vertical coordinate, and its error.

        The result is None without such trainings under the run's task, or if the axis does not show
        the run's metric.
        """
        is_up = view.metric is not None and view.metric.name == self.up.name
        cell = view.fresh.get(FRESH["search"], {}).get(candidate.key) if is_up else None
        if cell is None or cell.mean is None:
            return None
        scale = axis_factor(self.up)
        return scale * cell.mean, scale * (cell.error or 0.0)

    def limits(self) -> tuple[float | None, float | None]:
        """Return the coordinates of the limits of the two objectives; None for no limit."""
        across, up = (
            None if o.limit is None else axis_factor(o) * o.limit for o in (self.across, self.up)
        )
        return across, up

    def stairs(self, candidates: Sequence[Candidate]) -> list[Point]:
        """Return the coordinates of the non-dominated mechanisms, from left to right.

        Only the objectives of the two axes are considered. The list is empty unless the horizontal
        objective is minimised and the vertical objective is maximised.
        """
        if (self.across.direction, self.up.direction) != ("min", "max"):
            return []
        places = sorted({self.place(candidate.objectives) for candidate in candidates})
        return [places[i] for i in non_dominated([(x, -y) for x, y in places])]


def axis_factor(objective: Objective) -> float:
    """Return the factor from values to coordinates: 100 for fractions, else 1."""
    return 100.0 if objective.unit == FRACTION else 1.0


def front_chart(view: RunView) -> altair.LayerChart:
    """Return the chart of a run's front by its first metric and its first cost.

    Grey dots are scores (means of a mechanism's own trainings). Mechanisms of the front and named
    mechanisms are at their estimates, with bars of one standard error. All mechanisms to the right
    of the staircase and below it are dominated.

    Raises:
        RunError: the run has one objective.
    """
    import altair as alt

    objectives = view.setup.objectives
    if len(objectives) < 2:
        raise RunError(
            f"run {view.name!r} has one objective, {objectives[0].name}; a picture of a "
            "front needs two."
        )
    axes = FrontAxes.of(objectives)
    rows = [*_front_rows(view, axes)]
    x = ChartScale.of([row["x"] for row in rows], WIDTH, may_be_log=True)
    y = ChartScale.of([row[end] for row in rows for end in ("low", "high")], HEIGHT)
    across = alt.X("x:Q", scale=x.scale(), axis=x.axis(_title(axes.across)))
    up = alt.Y("y:Q", scale=y.scale(), axis=y.axis(_title(axes.up)))
    stairs = axes.stairs(view.members)
    if stairs:  # the last step reaches the largest cost
        stairs.append((max(row["x"] for row in rows), stairs[-1][1]))
    step = alt.Chart(chart_data({"x": x, "y": y} for x, y in stairs)).mark_line(
        interpolate="step-after", color=BLUE, strokeWidth=1.4
    )
    layers = [*_limit_rules(axes), step.encode(x=across, y=up)]
    for series, (colour, shape, size) in MARKS.items():
        own = [row for row in rows if row["series"] == series]
        bars = alt.Chart(chart_data(row for row in own if row["low"] < row["high"]))
        layers += [
            bars.mark_rule(color=colour).encode(x=across, y="low:Q", y2="high:Q"),
            alt.Chart(chart_data(own))
            .mark_point(
                shape=shape, size=size, color=colour, filled=True, opacity=1, stroke="white",
                strokeWidth=0.6,
            )
            .encode(x=across, y=up),
        ]  # fmt: skip
    # Invisible marks, for the legend and the tooltips.
    marks = alt.Chart(chart_data(rows)).mark_point(filled=True, size=120, opacity=0)
    layers += [
        *_labels(view, axes, rows, x, y),
        marks.encode(
            x=across,
            y=up,
            shape=_series(alt.Shape, 1),
            color=_series(alt.Color, 0),
            tooltip=[alt.Tooltip(f"{name}:N") for name in ("mechanism", "formula", "up", "across")],
        ),
    ]
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    base = view.standard
    if base is not None and base.objectives and not x.is_log:
        chart = _beside_standard(chart, x, axes.place(base.objectives)[0])
    title = f"{view.setup.space.name} · {task_and_data(view.setup)}"
    return styled(chart, title, _caption(view, axes))


def _front_rows(view: RunView, axes: FrontAxes) -> Iterator[dict[str, Any]]:
    """Yield a row for each mark: scores, then front, named mechanisms, and means of fresh seeds."""

    def row(candidate: Candidate, series: str, y: float, error: float) -> dict[str, Any]:
        x, unit = axes.place(candidate.objectives)[0], axes.up.unit
        value, spread = y / axis_factor(axes.up), error / axis_factor(axes.up)
        return {
            "x": x,
            "y": y,
            "low": y - error,
            "high": y + error,
            "series": series,
            "mechanism": view.name_of(candidate) or view.short(candidate),
            "formula": candidate.proposal.formula,
            "up": f"{header(axes.up.name)} {quantity(value, unit, spread or None)}",
            "across": quantity(candidate.objectives[axes.across.name], axes.across.unit),
        }

    for candidate in view.candidates:
        place = axes.place({**candidate.objectives, **candidate.scores})
        yield row(candidate, SCORES, place[1], 0.0)
    named = [candidate for _, candidate in view.named]
    for series, shown in ((FRONT, view.members), (NAMED, named)):
        for candidate in shown:
            y = axes.place(candidate.objectives)[1]
            yield row(candidate, series, y, axes.error(candidate))
    for candidate in {c.digest: c for c in (*view.members, *named)}.values():
        if fresh := axes.fresh(view, candidate):
            yield row(candidate, AGAIN, *fresh)


def _series(channel: Any, part: int) -> Any:
    import altair as alt

    scale = alt.Scale(domain=[*MARKS], range=[mark[part] for mark in MARKS.values()])
    return channel("series:N", scale=scale, title=None, legend=alt.Legend(orient="bottom-right"))


def _limit_rules(axes: FrontAxes) -> Iterator[Any]:
    """Yield a dashed line for each limit of an objective; mechanisms beyond it are in no front."""
    import altair as alt

    for name, limit in zip("xy", axes.limits(), strict=True):
        if limit is not None:
            rule = alt.Chart(chart_data([{"limit": limit}])).mark_rule(strokeDash=[4, 3], color=DIM)
            yield rule.encode(**{name: alt.X("limit:Q") if name == "x" else alt.Y("limit:Q")})


def _labels(
    view: RunView, axes: FrontAxes, rows: Rows, x: ChartScale, y: ChartScale
) -> Iterator[Any]:
    """Yield labels of named mechanisms and of the best, knee and cheapest members of the front.

    Of several places around its point, a label takes the nearest that overlaps no label and the
    fewest marks. A thin line leads to a label that is not beside its point.
    """
    import altair as alt

    texts = [(candidate, name, ORANGE) for name, candidate in view.named]
    for member in view.members:
        if member.digest in view.titles and not view.name_of(member):
            text = f"{', '.join(view.titles[member.digest])}: {view.short(member)}"
            texts.append((member, text, BLUE))
    marks = [(x.pixels(row["x"]), y.length - y.pixels(row["y"])) for row in rows]
    taken: list[tuple[float, float, float]] = []  # centres and half widths
    for candidate, text, colour in texts:
        left, up = axes.place(candidate.objectives)
        at = x.pixels(left), y.length - y.pixels(up)
        place = _place(at, LETTER * len(text) / 2, marks, taken, (x.length, y.length))
        taken.append((*place, LETTER * len(text) / 2))
        label = alt.Chart(chart_data([{"text": text}])).encode(
            x=alt.value(place[0]), y=alt.value(place[1]), text="text:N"
        )
        if math.dist(at, place) > LETTER * len(text) / 2 + 2 * DISTANCES[0]:
            line = alt.Chart(chart_data([{}])).mark_rule(color=colour, strokeWidth=0.5)
            ends = zip(("x", "y", "x2", "y2"), (*at, *place), strict=True)
            yield line.encode(**{name: alt.value(end) for name, end in ends})
        yield label.mark_text(fontSize=11, stroke="white", strokeWidth=3, strokeOpacity=0.85)
        yield label.mark_text(fontSize=11, color=colour)


def _place(
    at: Point,
    half: float,
    marks: Sequence[Point],
    taken: Sequence[tuple[float, float, float]],
    size: Point,
) -> Point:
    """Return the centre of a label of width ``2 * half`` near a point, in pixels.

    Args:
        marks: centres of all marks.
        taken: centres and half widths of the labels that exist already.
        size: width and height of the chart.
    """

    def centre(place: tuple[float, float]) -> Point:
        distance, angle = place[0], math.radians(place[1])
        across, up = distance + half, distance + LINE / 2
        return at[0] + math.cos(angle) * across, at[1] - math.sin(angle) * up

    def cost(place: tuple[float, float]) -> float:
        x, y = centre(place)
        labels = sum(abs(x - a) < half + b and abs(y - c) < LINE for a, c, b in taken)
        under = sum(abs(x - a) < half + 5 and abs(y - c) < LINE / 2 + 5 for a, c in marks)
        outside = not (half < x < size[0] - half and LINE < y < size[1] - LINE)
        return place[0] + 1000 * labels + 40 * under + 5000 * outside

    return centre(min(product(DISTANCES, ANGLES), key=cost))


def _beside_standard(chart: Any, x: ChartScale, standard: float) -> Any:
    """Return the chart with an upper axis of costs relative to standard attention."""
    import altair as alt

    scale = alt.Scale(domain=[x.low / standard, x.high / standard], nice=False, zero=False)
    axis = alt.Axis(
        orient="top", title="relative to standard attention (mha)", titleColor=DIM, labelColor=DIM,
        grid=False, tickCount=8,
    )  # fmt: skip
    ghost = alt.Chart(chart_data([{"ratio": 1.0}])).mark_point(opacity=0)
    upper = ghost.encode(x=alt.X("ratio:Q", scale=scale, axis=axis))
    return alt.layer(chart, upper).resolve_scale(x="independent")


def _title(objective: Objective) -> str:
    about = objective.about.rstrip(".")
    return ": ".join(filter(None, (header(objective.name, objective.unit), about)))


def _caption(view: RunView, axes: FrontAxes) -> str:
    setup = view.setup
    parts = [
        f"seed {setup.config.seed}",
        f"{plural(view.counts.evaluated, 'mechanism')} evaluated",
        f"hypervolume {view.hypervolume:.4f}",
    ]
    if any(member.errors for member in view.members):
        parts.append("bars: standard errors")
    if any(limit is not None for limit in axes.limits()):
        parts.append("dashed: limits of the front")
    if len(setup.objectives) > 2:
        others = [o.name for o in setup.objectives if o not in (axes.across, axes.up)]
        parts.append(f"also an objective: {', '.join(others)}")
    return " · ".join(parts)
