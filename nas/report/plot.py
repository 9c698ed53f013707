"""The Pareto front of a run as a figure, and the axes that it shares with the page's static figure.

Light dots are means of a mechanism's trainings. Mechanisms of the front and published mechanisms
are drawn at the metrics that the search's model estimates, with standard errors. All points to the
right of the staircase and below the staircase are dominated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class FrontAxes:
    """The two axes of a figure of mechanisms; coordinates of fractions are in per cent.

    Attributes:
        across: objective on the horizontal axis: the first cost, or without a cost an objective.
        up: objective on the vertical axis: the first metric, or without a metric an objective.
    """

    across: Objective
    up: Objective

    @classmethod
    def of(cls, objectives: Sequence[Objective]) -> FrontAxes:
        """Return the axes for the figure of a run with these objectives."""
        up = next((o for o in objectives if o.is_metric), objectives[0])
        others = [o for o in objectives if o is not up] or [up]
        return cls(min(others, key=lambda o: (o.is_metric, o.direction != "min")), up)

    def place(self, values: Mapping[str, float]) -> Point:
        """Return the coordinates of a mechanism.

        Args:
            values: values of the objectives of the mechanism, by name.
        """
        across, up = self.across, self.up
        return axis_factor(across) * values[across.name], axis_factor(up) * values[up.name]

    def error(self, candidate: Candidate) -> float:
        """Return the standard error of a mechanism's vertical coordinate, in units of the axis."""
        return axis_factor(self.up) * candidate.errors.get(self.up.name, 0.0)

    def fresh(self, view: RunView, candidate: Candidate) -> tuple[float, float] | None:
        """Return a mechanism's mean over fresh seeds, as vertical coordinate, and its error.

        Fresh seeds are seeds that the search never used; only trainings under the run's task count.
        The result is None if there are none, or if the axis does not show the run's metric.
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
        points = sorted({self.place(candidate.objectives) for candidate in candidates})
        return [points[i] for i in non_dominated([(x, -y) for x, y in points])]


def axis_factor(objective: Objective) -> float:
    """Return the factor from values to coordinates: 100 for fractions, else 1."""
    return 100.0 if objective.unit == FRACTION else 1.0


def draw_front(view: RunView) -> Any:
    """Return the Pareto front of a run as a matplotlib figure.

    Raises:
        RunError: the run has one objective.
    """
    objectives = view.setup.objectives
    if len(objectives) < 2:
        raise RunError(
            f"run {view.name!r} has one objective, {objectives[0].name}; a picture of a "
            "front needs two."
        )
    front = FrontAxes.of(objectives)
    title = f"{view.setup.space.name} · {task_and_data(view.setup)}"
    titles = (_title(front.across), _title(front.up))
    with new_axes(title, _caption(view, front), *titles) as axes:
        picture = _Picture(axes, view, front)
        picture.draw()
        axes.figure.canvas.draw()
        axes.figure.set_layout_engine("none")  # freeze the layout before labels are placed
        picture.label()
    return axes.figure


class _Picture:
    """A drawing of a Pareto front on matplotlib axes: first points and lines, then labels."""

    def __init__(self, axes: Any, view: RunView, front: FrontAxes) -> None:
        self.axes, self.view, self.front = axes, view, front
        self.scores = [front.place({**c.objectives, **c.scores}) for c in view.candidates]
        self.marked = [*view.members, *(candidate for _, candidate in view.named)]
        # The last step reaches the largest evaluated cost.
        self.stairs = front.stairs(view.members)
        if self.stairs:
            end = max((self._place(c)[0] for c in view.candidates), default=0.0)
            self.stairs.append((end, self.stairs[-1][1]))

    def draw(self) -> None:
        view, front = self.view, self.front
        self._scale_across()
        self._points(self.scores, "scores", "o", GREY, size=3.5)
        if self.stairs:
            xs, ys = zip(*self.stairs, strict=True)
            self.axes.step(xs, ys, where="post", color=BLUE, linewidth=1.4, zorder=2.5)
        self._limits()
        named = [candidate for _, candidate in view.named]
        for shown, label, marker, colour in (
            (view.members, "front", "o", BLUE),
            (named, "named mechanisms", "D", ORANGE),
        ):
            errors = [front.error(candidate) for candidate in shown]
            self._points(list(map(self._place, shown)), label, marker, colour, 6.5, errors)
        unique = {candidate.digest: candidate for candidate in self.marked}.values()
        fresh = [(self._place(c)[0], spread) for c in unique if (spread := front.fresh(view, c))]
        places = [(x, mean) for x, (mean, _) in fresh]
        errors = [error for _, (_, error) in fresh]
        self._points(places, "with fresh seeds", "s", GREEN, 4.5, errors)
        self.axes.legend(loc="best", frameon=True, framealpha=0.9, edgecolor="none", fontsize=FONT)

    def label(self) -> None:
        """Label published mechanisms, and the best, knee and cheapest mechanisms of the front."""
        view, labels, drawn = self.view, list[Any](), self._boxes()
        for name, candidate in view.named:
            labels.append(self._label(name, candidate, ORANGE, labels, drawn))
        for member in view.members:
            if member.digest in view.titles and not view.name_of(member):
                name = f"{', '.join(view.titles[member.digest])}: {view.short(member)}"
                labels.append(self._label(name, member, BLUE, labels, drawn))

    def _label(
        self,
        name: str,
        candidate: Candidate,
        colour: str,
        labels: Sequence[Any],
        drawn: Sequence[Any],
    ) -> Any:
        """Write a label near the point of a mechanism, and return the bounding box of the label.

        Of many positions around the point the label gets the position with the least overlap and
        distance.

        Args:
            name: text of the label.
            labels: bounding boxes of the labels that exist already.
            drawn: bounding boxes of points and lines.
        """
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
            covered = OVER_LABEL * shifted.count_overlaps(labels)
            covered += OVER_DRAWN * shifted.count_overlaps(drawn)
            return float(place[0] + covered + OUTSIDE * outside)

        best = shift(min(product(DISTANCES, map(math.radians, ANGLES)), key=cost))
        text.set_position([72 / DPI * pixels for pixels in best])
        return box.translated(*best)

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

    def _limits(self) -> None:
        """Draw a dashed line at each limit; mechanisms beyond it are in no front."""
        look = {"color": DIM, "linestyle": "--", "linewidth": 1.0, "zorder": 1.5}
        across, up = self.front.limits()
        drawn = [self.axes.axvline(across, **look)] if across is not None else []
        drawn += [self.axes.axhline(up, **look)] if up is not None else []
        for line in drawn[:1]:
            line.set_label("limits of the front")

    def _scale_across(self) -> None:
        """Set the scale of the horizontal axis.

        The scale is logarithmic if the largest cost is more than ``LOGARITHMIC_FROM`` times the
        smallest cost. Otherwise a second axis shows costs relative to standard attention.
        """
        from matplotlib.ticker import EngFormatter

        axes, standard = self.axes, self.view.standard
        axes.margins(x=0.06, y=0.08)
        values = [self._place(c)[0] for c in self.view.candidates]
        is_wide = min(values, default=0) > 0 and max(values) / min(values) > LOGARITHMIC_FROM
        axes.set_xscale("log" if is_wide else "linear")
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
        scale = self._place(standard)[0] if standard and standard.objectives else 0.0
        if scale and not is_wide:
            top = axes.secondary_xaxis("top", functions=(lambda x: x / scale, lambda x: x * scale))
            top.set_xlabel("relative to standard attention (mha)", fontsize=FONT, color=DIM)
            top.tick_params(labelsize=FONT, colors=DIM)

    def _boxes(self) -> list[Any]:
        """Return the bounding boxes that labels avoid: points, error bars, staircase, legend."""
        from matplotlib.transforms import Bbox

        bars = [(place, place, 4.0) for place in self.scores]
        for candidate in self.marked:
            (x, y), error = self._place(candidate), self.front.error(candidate)
            bars.append(((x, y - error), (x, y + error), 5.0))
        for (x, y), (next_x, next_y) in pairwise(self.stairs):
            bars += [((x, y), (next_x, y), 2.0), ((next_x, y), (next_x, next_y), 2.0)]
        at = self.axes.transData.transform
        legend = self.axes.get_legend().get_window_extent().padded(3.0)
        return [legend, *(Bbox(at([low, high])).padded(around) for low, high, around in bars)]

    def _place(self, candidate: Candidate) -> Point:
        return self.front.place(candidate.objectives)


def _title(objective: Objective) -> str:
    about = objective.about.rstrip(".")
    return ": ".join(filter(None, (header(objective.name, objective.unit), about)))


def _caption(view: RunView, front: FrontAxes) -> str:
    setup = view.setup
    parts = [
        f"seed {setup.config.seed}",
        f"{plural(view.counts.evaluated, 'mechanism')} evaluated",
        f"hypervolume {view.hypervolume:.4f}",
    ]
    if any(member.errors for member in view.members):
        parts.append("bars: standard errors")
    if len(setup.objectives) > 2:
        others = [o.name for o in setup.objectives if o not in (front.across, front.up)]
        parts.append(f"also an objective: {', '.join(others)}")
    return " · ".join(parts)
