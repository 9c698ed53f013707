"""The front as a figure.

Light dots are measured scores. Members of the front and published mechanisms of the same run are
drawn at their estimates with standard errors. All points to the right of the staircase and below it
are dominated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Final

from nas.common.errors import RunError
from nas.common.objectives import Objective
from nas.common.pareto import non_dominated
from nas.common.text import plural
from nas.report.charts import DIM, DPI, FONT, new_axes
from nas.report.run_view import FRESH, RunView, task_and_data
from nas.report.units import FRACTION, header
from nas.store import Candidate

if TYPE_CHECKING:
    Point = tuple[float, float]

LOGARITHMIC_FROM: Final = 20.0  # largest over smallest cost
GREY, BLUE, ORANGE, GREEN = "#b8bcc4", "#1f4e9c", "#d9660c", "#2a8c4a"

# Label positions: directions in degrees, preferred ones first, and distances in pixels.
ANGLES: Final = (0, 180, 45, -45, 135, -135, 90, -90, 20, -20, 160, -160, 65, -65, 115, -115)
DISTANCES: Final = (12, 22, 34, 48, 66, 90, 120)
# Costs of a label that overlaps another label or a point, or lies outside, in pixels of distance.
OVER_LABEL, OVER_DRAWN, OUTSIDE = 1000, 40, 5000


def draw_front(view: RunView) -> Any:
    """The picture as a matplotlib figure.

    Raises:
        RunError: the run has one objective.
    """
    objectives = view.setup.objectives
    if len(objectives) < 2:
        raise RunError(
            f"run {view.name!r} has one objective, {objectives[0].name}; a picture of a "
            "front needs two."
        )
    across, up = axes_of(objectives)
    title = f"{view.setup.space.name} · {task_and_data(view.setup)}"
    with new_axes(title, _caption(view, across, up), _title(across), _title(up)) as axes:
        picture = _Picture(axes, view, across, up)
        picture.draw()
        axes.figure.canvas.draw()
        axes.figure.set_layout_engine("none")  # freeze the layout before labels are placed
        picture.label()
    return axes.figure


class _Picture:
    """The layers of the picture from back to front, and the labels."""

    def __init__(self, axes: Any, view: RunView, across: Objective, up: Objective) -> None:
        self.axes, self.view, self.across, self.up = axes, view, across, up
        self.stairs = self._stairs()
        self.label_boxes: list[Any] = []
        self.drawn: list[Any] = []  # boxes of marks and lines that labels should not cover

    def draw(self) -> None:
        view = self.view
        self._scale_across()
        scores = [self._place(candidate, is_score=True) for candidate in view.candidates]
        self._points(scores, "scores", "o", GREY, size=3.5)
        if self.stairs:
            xs, ys = zip(*self.stairs, strict=True)
            self.axes.step(xs, ys, where="post", color=BLUE, linewidth=1.4, zorder=2.5)
        self._estimates(view.members, "front", "o", BLUE)
        named = [candidate for _, candidate in view.named]
        self._estimates(named, "named mechanisms", "D", ORANGE)
        self._fresh([*view.members, *named])
        self.axes.legend(loc="best", frameon=True, framealpha=0.9, edgecolor="none", fontsize=FONT)

    def label(self) -> None:
        """Label published mechanisms, best, knee and cheapest."""
        view = self.view
        self.drawn = self._boxes()
        for name, candidate in view.named:
            self._label(name, candidate, ORANGE)
        for member in view.members:
            if member.digest in view.titles and not view.names_of(member):
                titles = ", ".join(view.titles[member.digest])
                self._label(f"{titles}: {view.short(member)}", member, BLUE)

    def _label(self, name: str, candidate: Candidate, colour: str) -> None:
        """Write a label at the position of lowest cost around its point."""
        from matplotlib.patheffects import withStroke
        from matplotlib.text import Text

        text = self.axes.annotate(
            name,
            self._place(candidate),
            (0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=FONT,
            color=colour,
            path_effects=[withStroke(linewidth=2.0, foreground="white")],
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkB": 4},
        )
        renderer, frame = self.axes.figure.canvas.get_renderer(), self.axes.get_window_extent()
        text.update_positions(renderer)
        box = Text.get_window_extent(text, renderer)  # without the line to its point

        def shift(place: Point) -> Point:
            distance, angle = place
            across, up = distance + box.width / 2, distance + box.height / 2
            return math.cos(angle) * across, math.sin(angle) * up

        def cost(place: Point) -> float:
            shifted = box.translated(*shift(place))
            outside = 2 - frame.count_contains(shifted.get_points())
            covered = OVER_LABEL * shifted.count_overlaps(self.label_boxes)
            covered += OVER_DRAWN * shifted.count_overlaps(self.drawn)
            return float(place[0] + covered + OUTSIDE * outside)

        best = shift(min(product(DISTANCES, map(math.radians, ANGLES)), key=cost))
        text.set_position([72 / DPI * pixels for pixels in best])
        self.label_boxes.append(box.translated(*best))

    def _estimates(self, shown: Sequence[Candidate], label: str, marker: str, colour: str) -> None:
        errors = [self._error(candidate) for candidate in shown]
        self._points(list(map(self._place, shown)), label, marker, colour, 6.5, errors)

    def _fresh(self, shown: Sequence[Candidate]) -> None:
        """Draw means over fresh seeds under the run's task."""
        if self.view.metric is not self.up:
            return
        spreads = {c.digest: (c, self.view.spread(FRESH["search"], c.key)) for c in shown}
        confirmed = [(c, spread) for c, spread in spreads.values() if spread is not None]
        scale = axis_factor(self.up)
        places = [(self._place(c)[0], scale * spread.mean) for c, spread in confirmed]
        errors = [scale * (spread.error or 0.0) for _, spread in confirmed]
        self._points(places, "with fresh seeds", "s", GREEN, 4.5, errors)

    def _points(
        self,
        places: Sequence[Point],
        label: str,
        marker: str,
        colour: str,
        size: float,
        errors: Sequence[float] = (),
    ) -> None:
        if not places:
            return
        xs, ys = zip(*places, strict=True)
        self.axes.errorbar(
            xs,
            ys,
            yerr=errors if any(errors) else None,
            fmt=marker,
            color=colour,
            markersize=size,
            markeredgecolor="white",
            markeredgewidth=0.6,
            elinewidth=size / 6,
            capsize=size / 4,
            label=f"{label} ({len(places)})",
            zorder=2 + size / 10,
        )

    def _scale_across(self) -> None:
        """A logarithmic axis for costs over decades, else a second axis relative to mha."""
        from matplotlib.ticker import EngFormatter

        axes, view = self.axes, self.view
        axes.margins(x=0.06, y=0.08)
        values = [self._place(c)[0] for c in view.candidates]
        is_wide = min(values, default=0) > 0 and max(values) / min(values) > LOGARITHMIC_FROM
        axes.set_xscale("log" if is_wide else "linear")
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
        is_placed = view.standard is not None and bool(view.standard.objectives)
        scale = self._place(view.standard)[0] if view.standard and is_placed else 0.0
        if scale and not is_wide:
            top = axes.secondary_xaxis("top", functions=(lambda x: x / scale, lambda x: x * scale))
            top.set_xlabel("relative to standard attention (mha)", fontsize=FONT, color=DIM)
            top.tick_params(labelsize=FONT, colors=DIM)

    def _stairs(self) -> list[Point]:
        """The corners from left to right; the last step reaches the largest evaluated cost.

        With three objectives not every member is a corner. The list is empty unless the horizontal
        objective is minimised and the vertical one maximised.
        """
        if (self.across.direction, self.up.direction) != ("min", "max"):
            return []
        points = sorted({self._place(member) for member in self.view.members})
        corners = [points[i] for i in non_dominated([(x, -y) for x, y in points])]
        end = max((self._place(c)[0] for c in self.view.candidates), default=0.0)
        return [*corners, (end, corners[-1][1])] if corners else []

    def _boxes(self) -> list[Any]:
        """Bounding boxes of points with bars, staircase and legend, which labels avoid."""
        from matplotlib.transforms import Bbox

        boxes = [self.axes.get_legend().get_window_extent().padded(3.0)]
        view, bars = self.view, []
        for candidate in (*view.members, *(named for _, named in view.named)):
            (x, y), error = self._place(candidate), self._error(candidate)
            bars.append(((x, y - error), (x, y + error), 5.0))
        scores = [self._place(candidate, is_score=True) for candidate in view.candidates]
        bars += [(place, place, 4.0) for place in scores]
        for (x, y), (next_x, next_y) in pairwise(self.stairs):
            bars += [((x, y), (next_x, y), 2.0), ((next_x, y), (next_x, next_y), 2.0)]
        at = self.axes.transData.transform
        return boxes + [Bbox(at([low, high])).padded(around) for low, high, around in bars]

    def _place(self, candidate: Candidate, *, is_score: bool = False) -> Point:
        """Coordinates of a candidate, estimated or measured."""
        values = {**candidate.objectives, **(candidate.scores if is_score else {})}
        return (
            axis_factor(self.across) * values[self.across.name],
            axis_factor(self.up) * values[self.up.name],
        )

    def _error(self, candidate: Candidate) -> float:
        """Half the length of a candidate's error bar."""
        return axis_factor(self.up) * candidate.errors.get(self.up.name, 0.0)


def axes_of(objectives: Sequence[Objective]) -> tuple[Objective, Objective]:
    """The objectives of the horizontal axis (the first cost, if any) and the vertical one."""
    up = next((o for o in objectives if o.is_metric), objectives[0])
    others = [o for o in objectives if o is not up] or [up]
    return min(others, key=lambda o: (o.is_metric, o.direction != "min")), up


def axis_factor(objective: Objective) -> float:
    """The factor from values to an axis: fractions are shown in per cent."""
    return 100.0 if objective.unit == FRACTION else 1.0


def _title(objective: Objective) -> str:
    """Name, unit and description of an objective."""
    about = objective.about.rstrip(".")
    return ": ".join(filter(None, (header(objective.name, objective.unit), about)))


def _caption(view: RunView, across: Objective, up: Objective) -> str:
    setup = view.setup
    parts = [
        f"seed {setup.config.seed}",
        f"{plural(view.counts.evaluated, 'mechanism')} evaluated",
        f"hypervolume {view.hypervolume:.4f}",
    ]
    if any(member.errors for member in view.members):
        parts.append("bars: standard errors")
    if len(setup.objectives) > 2:
        others = [o.name for o in setup.objectives if o not in (across, up)]
        parts.append(f"also an objective: {', '.join(others)}")
    return " · ".join(parts)
