"""The front as a picture: PNG, SVG or PDF.

Everything evaluated is light, the front is a staircase (all that is right of it and below is
dominated), the named mechanisms that were trained in the same run are the points of reference.
matplotlib is used without a window and without its global state.
"""

from __future__ import annotations

import contextlib
import math
import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from nas.errors import RunError
from nas.pareto import non_dominated
from nas.report.facts import task_and_data
from nas.report.labels import Box, nearest, place
from nas.report.text import plural
from nas.report.units import FRACTION, header

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from nas.objectives import Objective
    from nas.report.facts import RunFacts
    from nas.store import Candidate

FORMATS: Final = (".png", ".svg", ".pdf")
INCHES: Final = (8.0, 16 / 3)  # 1200 x 800 pixels
DPI: Final = 150
LOGARITHMIC_FROM: Final = 20.0  # largest over smallest cost
LEADER_FROM: Final = 18.0  # pixels between a point and its label

# Names may hold a dollar sign, which would begin a formula.
STYLE: Final = {"svg.hashsalt": "nas", "font.size": 9.5, "text.parse_math": False}
GREY, BLUE, ORANGE, DIM = "#b8bcc4", "#1f4e9c", "#d9660c", "#555555"


def check_plot(path: Path) -> None:
    """Refuse a picture of a kind that cannot be drawn, before anything else is done.

    Raises:
        RunError: the name does not end in one of ``FORMATS``.
    """
    if path.suffix.lower() not in FORMATS:
        raise RunError(
            f"{path}: found the ending {path.suffix or 'none'!r}; expected a picture's: "
            f"{', '.join(FORMATS)}."
        )


def plot_front(facts: RunFacts, path: Path) -> None:
    """Draw the front into a file, whole or not at all.

    Raises:
        RunError: the file cannot be written or is of another kind; the run has one objective.
    """
    check_plot(path)
    write_figure(draw(facts), path)


@contextlib.contextmanager
def new_figure(title: str, caption: str) -> Iterator[Any]:
    """An empty matplotlib figure in our style, with a title above and a caption below."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06)
        figure = Figure(figsize=INCHES, dpi=DPI, layout=layout)
        FigureCanvasAgg(figure)
        figure.suptitle(title, x=0.02, ha="left", weight="bold")
        figure.supxlabel(caption, x=0.02, ha="left", size=8, color=DIM)
        yield figure


def write_figure(figure: Any, path: Path) -> None:
    """Write a figure into a file, whole or not at all.

    Raises:
        RunError: the file cannot be written.
    """
    import matplotlib as mpl

    staging = path.with_name(f".{os.getpid()}{path.suffix}")
    kind = path.suffix[1:].lower()
    # Without a date the same front gives the same file.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Opened as new: a link that somebody left under this name is not followed.
        with mpl.rc_context(STYLE), staging.open("xb") as file:
            figure.savefig(file, format=kind, dpi=DPI, metadata=metadata)
        staging.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            staging.unlink()
        raise RunError(f"{path}: cannot be written ({error.strerror}).") from error


def draw(facts: RunFacts) -> Any:
    """The picture as a matplotlib figure."""
    across, up = _axes_of(facts)
    title = f"{facts.summary.space} · {task_and_data(facts.setup)}"
    with new_figure(title, _caption(facts, across, up)) as figure:
        picture = _Picture(figure, facts, across, up)
        picture.draw()
        figure.canvas.draw()
        figure.set_layout_engine("none")  # from here on nothing moves
        picture.label()
    return figure


def position(candidate: Candidate, across: Objective, up: Objective) -> tuple[float, float]:
    """Where a candidate stands, in the units of the axes."""
    values = candidate.objectives
    return _scale(across) * values[across.name], _scale(up) * values[up.name]


def stairs(facts: RunFacts, across: Objective, up: Objective) -> list[tuple[float, float]]:
    """The steps from left to right, the last one as wide as what was evaluated.

    With three objectives not every member is a corner. There are no stairs but between a cost and
    something that is maximised.
    """
    if (across.direction, up.direction) != ("min", "max"):
        return []
    points = sorted({position(m, across, up) for m in facts.members})
    corners = [points[i] for i in non_dominated([(x, -y) for x, y in points])]
    end = max((position(c, across, up)[0] for c in facts.candidates), default=0.0)
    return [*corners, (end, corners[-1][1])] if corners else []


class _Picture:
    """The layers of the picture, from the back to the front, and the labels on top."""

    def __init__(self, figure: Any, facts: RunFacts, across: Objective, up: Objective) -> None:
        self.figure, self.axes = figure, figure.add_subplot()
        self.facts, self.across, self.up = facts, across, up

    def draw(self) -> None:
        facts = self.facts
        self._style()
        self._points(facts.candidates, "evaluated", "o", GREY, size=4)
        points = stairs(facts, self.across, self.up)
        if points:
            xs, ys = zip(*points, strict=True)
            self.axes.step(xs, ys, where="post", color=BLUE, linewidth=1.4, zorder=2.5)
        self._points(facts.members, "front", "o", BLUE, size=6.5)
        named = [candidate for _, candidate in facts.named]
        self._points(named, "named mechanisms", "D", ORANGE, size=6.5)
        self.axes.legend(loc="best", frameon=True, framealpha=0.9, edgecolor="none", fontsize=8.5)

    def label(self) -> None:
        """Name the named mechanisms, and best, knee and cheapest, where there is space."""
        from matplotlib.patheffects import withStroke

        renderer, share = self.figure.canvas.get_renderer(), self.figure.transFigure
        shown = self._labels()
        style = {"va": "bottom", "transform": share, "fontsize": 8.5}
        halo = [withStroke(linewidth=2.0, foreground="white")]
        texts = [
            self.figure.text(0, 0, name, color=colour, path_effects=halo, **style)
            for name, _, colour in shown
        ]
        points = [self._pixels(self._place(candidate)) for _, candidate, _ in shown]
        sizes = [(box.width, box.height) for box in (t.get_window_extent(renderer) for t in texts)]
        frame = _box(self.axes.get_window_extent(renderer)).grown(-2.0)
        boxes = place(points, sizes, frame, self._drawn(renderer))
        # Shares of the figure, since a vector format has other pixels.
        to_share = share.inverted().transform
        for text, box, point in zip(texts, boxes, points, strict=True):
            text.set_position(to_share((box.left, box.bottom)))
            end = nearest(box, point)
            if math.dist(end, point) > LEADER_FROM:
                self.figure.add_artist(_leader(to_share([point, end]), text.get_color(), share))

    def _labels(self) -> list[tuple[str, Candidate, str]]:
        facts = self.facts
        shown = [(name, candidate, ORANGE) for name, candidate in facts.named]
        for member in facts.members:
            if member.digest in facts.titles and not facts.names_of(member):
                titles = ", ".join(facts.titles[member.digest])
                shown.append((f"{titles}: {facts.short(member)}", member, BLUE))
        return shown

    def _points(
        self, shown: Sequence[Candidate], label: str, marker: str, colour: str, size: float
    ) -> None:
        if not shown:
            return
        xs, ys = zip(*map(self._place, shown), strict=True)
        errors = [self._error(c) for c in shown]
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
            label=f"{label} ({len(shown)})",
            zorder=2 + size / 10,
        )

    def _style(self) -> None:
        from matplotlib.ticker import EngFormatter

        axes, facts = self.axes, self.facts
        axes.set_xlabel(_title(self.across))
        axes.set_ylabel(_title(self.up))
        axes.grid(color="#e6e8ec", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["right"]].set_visible(False)
        axes.margins(x=0.06, y=0.08)
        values = [self._place(c)[0] for c in facts.candidates]
        if min(values, default=0) > 0 and max(values) / min(values) > LOGARITHMIC_FROM:
            axes.set_xscale("log")
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
        scale = self._place(facts.standard)[0] if facts.standard else 0.0
        if not scale or axes.get_xscale() == "log":
            axes.spines[["top"]].set_visible(False)
            return
        top = axes.secondary_xaxis("top", functions=(lambda x: x / scale, lambda x: x * scale))
        top.set_xlabel("relative to standard attention (mha)", fontsize=8.5, color=DIM)
        top.tick_params(labelsize=8.5, colors=DIM)

    def _drawn(self, renderer: Any) -> list[Box]:
        """What labels should not cover: points with their bars, the staircase, the legend."""
        boxes = []
        for candidate in self.facts.candidates:
            (x, y), error = self._place(candidate), self._error(candidate)
            (left, low), (_, high) = self._pixels((x, y - error)), self._pixels((x, y + error))
            boxes.append(Box(left, low, left, high).grown(5.0))
        corners = [self._pixels(p) for p in stairs(self.facts, self.across, self.up)]
        for (x, y), (next_x, next_y) in pairwise(corners):
            boxes.append(Box(x, y, next_x, y).grown(2.0))
            boxes.append(Box(next_x, min(y, next_y), next_x, max(y, next_y)).grown(2.0))
        return [*boxes, _box(self.axes.get_legend().get_window_extent(renderer)).grown(3.0)]

    def _place(self, candidate: Candidate) -> tuple[float, float]:
        return position(candidate, self.across, self.up)

    def _error(self, candidate: Candidate) -> float:
        """Half the length of a candidate's error bar."""
        return _scale(self.up) * candidate.standard_errors.get(self.up.name, 0.0)

    def _pixels(self, point: tuple[float, float]) -> tuple[float, float]:
        x, y = self.axes.transData.transform(point)
        return float(x), float(y)


def _axes_of(facts: RunFacts) -> tuple[Objective, Objective]:
    """What goes across and up: the first cost, and the first objective that is no cost."""
    objectives = facts.setup.objectives
    if len(objectives) < 2:
        raise RunError(
            f"run {facts.summary.name!r} has one objective, {objectives[0].name}; a picture of a "
            "front needs two."
        )
    up = next((o for o in objectives if o.is_metric), objectives[0])
    others = [o for o in objectives if o is not up]
    return next((o for o in others if o.direction == "min"), others[0]), up


def _scale(objective: Objective) -> float:
    return 100.0 if objective.unit == FRACTION else 1.0


def _title(objective: Objective) -> str:
    """What an axis shows, and in which unit."""
    about = objective.about.rstrip(".")
    return ": ".join(filter(None, (header(objective.name, objective.unit), about)))


def _caption(facts: RunFacts, across: Objective, up: Objective) -> str:
    setup, summary = facts.setup, facts.summary
    parts = [
        f"space {summary.space}",
        f"task {task_and_data(setup)}",
        f"seed {summary.seed}",
        f"{plural(summary.counts.evaluated, 'mechanism')} evaluated",
        f"hypervolume {facts.hypervolume:.4f}",
    ]
    if setup.repeats > 1:
        parts.append(f"bars: standard error over {setup.repeats} seeds")
    if len(setup.objectives) > 2:
        others = [o.name for o in setup.objectives if o not in (across, up)]
        parts.append(f"also an objective: {', '.join(others)}")
    return " · ".join(parts)


def _leader(ends: Any, colour: str, transform: Any) -> Any:
    """A thin line to a label that stands apart from its point."""
    from matplotlib.lines import Line2D

    xs, ys = ends[:, 0], ends[:, 1]
    return Line2D(xs, ys, linewidth=0.6, alpha=0.7, color=colour, transform=transform)


def _box(extent: Any) -> Box:
    return Box(extent.x0, extent.y0, extent.x1, extent.y1)
