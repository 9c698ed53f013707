"""The front as a picture: PNG, SVG or PDF.

Everything evaluated is light, the front is a staircase (all that is right of it and below is
dominated), the named mechanisms that were trained in the same run are the points of reference.
The only room that knows matplotlib, without a window and without its global state.
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
from nas.report.units import plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nas.evaluation.record import Objective
    from nas.report.facts import Facts
    from nas.store import Candidate

FORMATS: Final = (".png", ".svg", ".pdf")
INCHES: Final = (8.0, 16 / 3)  # 1200 x 800 pixels
DPI: Final = 150
LOGARITHMIC_FROM: Final = 20.0  # largest over smallest cost
LEADER_FROM: Final = 18.0  # pixels between a point and its label

STYLE: Final = {"svg.hashsalt": "nas", "font.size": 9.5}
GREY, BLUE, ORANGE = "#b8bcc4", "#1f4e9c", "#d9660c"
AXES: Final = {
    "accuracy": "accuracy on held-out training images (%)",
    "macs": "multiply-adds of the attention layers",
    "params": "parameters of the attention layers",
    "kv_cache_bytes_per_token": "KV cache (bytes a token)",
    "latency_ms": "latency (ms)",
}


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


def plot_front(facts: Facts, path: Path) -> None:
    """Draw the front into a file, whole or not at all.

    Raises:
        RunError: the file cannot be written or is of another kind; the run has one objective.
    """
    check_plot(path)
    write_figure(draw(facts), path)


def write_figure(figure: Any, path: Path) -> None:
    """Write a figure into a file, whole or not at all.

    Raises:
        RunError: the file cannot be written.
    """
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    kind = path.suffix[1:].lower()
    # Without a date the same front gives the same file.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    import matplotlib as mpl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context(STYLE):
            figure.savefig(staging, format=kind, dpi=DPI, metadata=metadata)
        staging.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            staging.unlink()
        raise RunError(f"{path}: cannot be written ({error.strerror}).") from error


def draw(facts: Facts) -> Any:
    """The picture as a matplotlib figure."""
    across, up = _axes_of(facts)
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06)
        figure = Figure(figsize=INCHES, dpi=DPI, layout=layout)
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        _Picture(axes, facts, across, up).draw()
        figure.suptitle(
            f"{facts.summary.space} · {task_and_data(facts.setup)}",
            x=0.02,
            ha="left",
            weight="bold",
        )
        figure.supxlabel(_caption(facts, across, up), x=0.02, ha="left", size=8, color="#555555")
        figure.canvas.draw()
        figure.set_layout_engine("none")  # from here on nothing moves
        _label(figure, axes, facts, across, up)
    return figure


class _Picture:
    """The layers of the picture, from the back to the front."""

    def __init__(self, axes: Any, facts: Facts, across: Objective, up: Objective) -> None:
        self.axes, self.facts, self.across, self.up = axes, facts, across, up

    def draw(self) -> None:
        facts = self.facts
        self._style()
        self._points(facts.candidates, "evaluated", "o", GREY, size=4)
        self._staircase()
        self._points(facts.members, "front", "o", BLUE, size=6.5)
        named = [candidate for _, candidate in facts.named]
        self._points(named, "named mechanisms", "D", ORANGE, size=6.5)
        self.axes.legend(loc="best", frameon=True, framealpha=0.9, edgecolor="none", fontsize=8.5)

    def _points(
        self,
        shown: Sequence[Candidate],
        label: str,
        marker: str,
        colour: str,
        size: float,
    ) -> None:
        if not shown:
            return
        xs, ys = zip(*(position(c, self.across, self.up) for c in shown), strict=True)
        errors = [_error(c, self.up) for c in shown]
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

    def _staircase(self) -> None:
        points = stairs(self.facts, self.across, self.up)
        if points:
            xs, ys = zip(*points, strict=True)
            self.axes.step(xs, ys, where="post", color=BLUE, linewidth=1.4, zorder=2.5)

    def _style(self) -> None:
        from matplotlib.ticker import EngFormatter

        axes, facts = self.axes, self.facts
        axes.set_xlabel(AXES.get(self.across.name, f"{self.across.name} ({self.across.unit})"))
        axes.set_ylabel(AXES.get(self.up.name, f"{self.up.name} ({self.up.unit})"))
        axes.grid(color="#e6e8ec", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["right"]].set_visible(False)
        axes.margins(x=0.06, y=0.08)
        values = [position(c, self.across, self.up)[0] for c in facts.candidates]
        if min(values, default=0) > 0 and max(values) / min(values) > LOGARITHMIC_FROM:
            axes.set_xscale("log")
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
        whole = facts.standard and facts.standard.objectives[self.across.name]
        if not whole or axes.get_xscale() == "log":
            axes.spines[["top"]].set_visible(False)
            return
        scale = float(whole)
        top = axes.secondary_xaxis("top", functions=(lambda x: x / scale, lambda x: x * scale))
        top.set_xlabel("relative to standard attention (mha)", fontsize=8.5, color="#555555")
        top.tick_params(labelsize=8.5, colors="#555555")


def position(candidate: Candidate, across: Objective, up: Objective) -> tuple[float, float]:
    """Where a candidate stands, in the units of the axes."""
    values = candidate.objectives
    return _scale(across) * values[across.name], _scale(up) * values[up.name]


def stairs(facts: Facts, across: Objective, up: Objective) -> list[tuple[float, float]]:
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


def _axes_of(facts: Facts) -> tuple[Objective, Objective]:
    """What goes across and up: the first cost, and the first that is maximised."""
    objectives = facts.setup.objectives
    if len(objectives) < 2:
        raise RunError(
            f"run {facts.summary.name!r} has one objective, {objectives[0].name}; a picture of a "
            "front needs two."
        )
    up = next((o for o in objectives if o.direction == "max"), objectives[-1])
    across = next(o for o in objectives if o is not up)
    return next((o for o in objectives if o is not up and o.direction == "min"), across), up


def _scale(objective: Objective) -> float:
    return 100.0 if objective.name == "accuracy" else 1.0


def _caption(facts: Facts, across: Objective, up: Objective) -> str:
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


def _label(figure: Any, axes: Any, facts: Facts, across: Objective, up: Objective) -> None:
    """Name the named mechanisms, and best, knee and cheapest, where there is room."""
    from matplotlib.patheffects import withStroke

    renderer = figure.canvas.get_renderer()
    shown = [(name, candidate, ORANGE) for name, candidate in facts.named]
    for member in facts.members:
        if member.digest in facts.titles and not facts.names_of(member):
            titles = ", ".join(facts.titles[member.digest])
            shown.append((f"{titles}: {facts.short(member)}", member, BLUE))
    points = [_pixels(axes, position(candidate, across, up)) for _, candidate, _ in shown]
    # Shares of the figure, since a vector format has other pixels.
    share = figure.transFigure
    halo = [withStroke(linewidth=2.0, foreground="white")]
    texts = [
        figure.text(
            0, 0, name, fontsize=8.5, va="bottom", transform=share, color=colour, path_effects=halo
        )
        for name, _, colour in shown
    ]
    sizes = [(box.width, box.height) for box in (t.get_window_extent(renderer) for t in texts)]
    boxes = place(points, sizes, _frame(axes, renderer), _drawn(axes, facts, across, up, renderer))
    for text, box, point in zip(texts, boxes, points, strict=True):
        text.set_position(share.inverted().transform((box.left, box.bottom)))
        end = nearest(box, point)
        if math.dist(end, point) > LEADER_FROM:
            line = share.inverted().transform([point, end])
            figure.add_artist(_line(line, color=text.get_color(), transform=share))


def _line(ends: Any, **style: Any) -> Any:
    """A thin line to a label that stands apart from its point."""
    from matplotlib.lines import Line2D

    return Line2D(ends[:, 0], ends[:, 1], linewidth=0.6, alpha=0.7, **style)


def _drawn(axes: Any, facts: Facts, across: Objective, up: Objective, renderer: Any) -> list[Box]:
    """What labels should not cover: points with their bars, the staircase, the legend."""
    boxes = []
    for candidate in facts.candidates:
        x, y = position(candidate, across, up)
        error = _error(candidate, up)
        (left, low), (_, high) = _pixels(axes, (x, y - error)), _pixels(axes, (x, y + error))
        boxes.append(Box(left, low, left, high).grown(5.0))
    corners = [_pixels(axes, corner) for corner in stairs(facts, across, up)]
    for (x, y), (next_x, next_y) in pairwise(corners):
        boxes.append(Box(x, y, next_x, y).grown(2.0))
        boxes.append(Box(next_x, min(y, next_y), next_x, max(y, next_y)).grown(2.0))
    legend = axes.get_legend().get_window_extent(renderer)
    return [*boxes, Box(legend.x0, legend.y0, legend.x1, legend.y1).grown(3.0)]


def _error(candidate: Candidate, up: Objective) -> float:
    """Half the length of a candidate's error bar."""
    return _scale(up) * candidate.standard_errors.get(up.name, 0.0)


def _frame(axes: Any, renderer: Any) -> Box:
    box = axes.get_window_extent(renderer)
    return Box(box.x0 + 2, box.y0 + 2, box.x1 - 2, box.y1 - 2)


def _pixels(axes: Any, point: tuple[float, float]) -> tuple[float, float]:
    x, y = axes.transData.transform(point)
    return float(x), float(y)
