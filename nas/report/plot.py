"""The front as a picture: PNG, SVG or PDF; and what all pictures share.

Everything evaluated is light, the front is a staircase (all that is right of it and below is
dominated), the named mechanisms that were trained in the same run are the points of reference.
matplotlib is used without a window and without its global state.
"""

from __future__ import annotations

import contextlib
import io
import math
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Final

from nas.errors import RunError
from nas.pareto import non_dominated
from nas.report.facts import task_and_data
from nas.report.text import plural
from nas.report.units import FRACTION, header
from nas.store.files import write_whole

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

# Names may hold a dollar sign, which would begin a formula.
STYLE: Final = {"svg.hashsalt": "nas", "font.size": 9.5, "text.parse_math": False}
GREY, BLUE, ORANGE, DIM = "#b8bcc4", "#1f4e9c", "#d9660c", "#555555"
FONT: Final = 8.5

# Where a label may stand: directions in degrees, the preferred ones first, and pixels away.
ANGLES: Final = (0, 180, 45, -45, 135, -135, 90, -90, 20, -20, 160, -160, 65, -65, 115, -115)
DISTANCES: Final = (12, 22, 34, 48, 66, 90, 120)
# What it costs a label to cover another one or a point, or to stand outside, in pixels away.
OVER_LABEL, OVER_DRAWN, OUTSIDE = 1000, 40, 5000


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


def new_axes(figure: Any, across: str, up: str) -> Any:
    """Axes with titles, on a quiet grid."""
    axes = figure.add_subplot(xlabel=across, ylabel=up)
    axes.grid(color="#e6e8ec", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def write_figure(figure: Any, path: Path) -> None:
    """Write a figure into a file, whole or not at all.

    Raises:
        RunError: the file cannot be written.
    """
    import matplotlib as mpl

    kind, content = path.suffix[1:].lower(), io.BytesIO()
    # Without a date the same front gives the same file.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with mpl.rc_context(STYLE):
        figure.savefig(content, format=kind, dpi=DPI, metadata=metadata)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.getvalue())
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror}).") from error


def draw(facts: RunFacts) -> Any:
    """The picture as a matplotlib figure."""
    across, up = _axes_of(facts)
    title = f"{facts.summary.space} · {task_and_data(facts.setup)}"
    with new_figure(title, _caption(facts, across, up)) as figure:
        picture = _Picture(new_axes(figure, _title(across), _title(up)), facts, across, up)
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

    def __init__(self, axes: Any, facts: RunFacts, across: Objective, up: Objective) -> None:
        self.axes, self.facts, self.across, self.up = axes, facts, across, up
        self.stairs = stairs(facts, across, up)

    def draw(self) -> None:
        facts = self.facts
        self._scale_across()
        self._points(facts.candidates, "evaluated", "o", GREY, size=4)
        if self.stairs:
            xs, ys = zip(*self.stairs, strict=True)
            self.axes.step(xs, ys, where="post", color=BLUE, linewidth=1.4, zorder=2.5)
        self._points(facts.members, "front", "o", BLUE, size=6.5)
        named = [candidate for _, candidate in facts.named]
        self._points(named, "named mechanisms", "D", ORANGE, size=6.5)
        self.axes.legend(loc="best", frameon=True, framealpha=0.9, edgecolor="none", fontsize=FONT)

    def label(self) -> None:
        """Name the named mechanisms, and best, knee and cheapest: each label where it fits."""
        facts, drawn = self.facts, self._drawn()
        taken: list[Any] = []
        for name, candidate in facts.named:
            taken.append(self._label(name, candidate, ORANGE, taken, drawn))
        for member in facts.members:
            if member.digest in facts.titles and not facts.names_of(member):
                name = f"{', '.join(facts.titles[member.digest])}: {facts.short(member)}"
                taken.append(self._label(name, member, BLUE, taken, drawn))

    def _label(
        self, name: str, candidate: Candidate, colour: str, taken: list[Any], drawn: list[Any]
    ) -> Any:
        """Write a label at the best of a ring of places around its point; returns its box."""
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

        def cost(place: tuple[float, float, float]) -> float:
            distance, *shift = place
            found = box.translated(*shift)
            return float(
                distance
                + OVER_LABEL * found.count_overlaps(taken)
                + OVER_DRAWN * found.count_overlaps(drawn)
                + OUTSIDE * (2 - frame.count_contains(found.get_points()))
            )

        _, *shift = min(_ring(box.width, box.height), key=cost)
        text.set_position([72 / DPI * pixels for pixels in shift])
        return box.translated(*shift)

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

    def _scale_across(self) -> None:
        """Costs over decades on a logarithmic axis, others beside standard attention's."""
        from matplotlib.ticker import EngFormatter

        axes, facts = self.axes, self.facts
        axes.margins(x=0.06, y=0.08)
        values = [self._place(c)[0] for c in facts.candidates]
        is_wide = min(values, default=0) > 0 and max(values) / min(values) > LOGARITHMIC_FROM
        axes.set_xscale("log" if is_wide else "linear")
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
        scale = self._place(facts.standard)[0] if facts.standard else 0.0
        if scale and not is_wide:
            top = axes.secondary_xaxis("top", functions=(lambda x: x / scale, lambda x: x * scale))
            top.set_xlabel("relative to standard attention (mha)", fontsize=FONT, color=DIM)
            top.tick_params(labelsize=FONT, colors=DIM)

    def _drawn(self) -> list[Any]:
        """What labels should not cover: points with their bars, the staircase, the legend."""
        boxes = [self.axes.get_legend().get_window_extent().padded(3.0)]
        for candidate in self.facts.candidates:
            (x, y), error = self._place(candidate), self._error(candidate)
            boxes.append(self._box((x, y - error), (x, y + error)).padded(5.0))
        for (x, y), (next_x, next_y) in pairwise(self.stairs):
            boxes.append(self._box((x, y), (next_x, y)).padded(2.0))
            boxes.append(self._box((next_x, y), (next_x, next_y)).padded(2.0))
        return boxes

    def _box(self, low: tuple[float, float], high: tuple[float, float]) -> Any:
        from matplotlib.transforms import Bbox

        return Bbox(self.axes.transData.transform([low, high]))

    def _place(self, candidate: Candidate) -> tuple[float, float]:
        return position(candidate, self.across, self.up)

    def _error(self, candidate: Candidate) -> float:
        """Half the length of a candidate's error bar."""
        return _scale(self.up) * candidate.errors.get(self.up.name, 0.0)


def _ring(width: float, height: float) -> Iterator[tuple[float, float, float]]:
    """Distances from a point, and the way of a label's centre to there, preferred ones first."""
    for distance, angle in product(DISTANCES, map(math.radians, ANGLES)):
        dx, dy = math.cos(angle), math.sin(angle)
        across, up = _sign(dx) * width / 2, _sign(dy) * height / 2
        yield distance, dx * distance + across, dy * distance + up


def _sign(value: float) -> float:
    return 0.0 if abs(value) < 0.1 else math.copysign(1.0, value)


def _axes_of(facts: RunFacts) -> tuple[Objective, Objective]:
    """What goes across and up: the first cost if there is one, and the first metric."""
    objectives = facts.setup.objectives
    if len(objectives) < 2:
        raise RunError(
            f"run {facts.summary.name!r} has one objective, {objectives[0].name}; a picture of a "
            "front needs two."
        )
    up = next((o for o in objectives if o.is_metric), objectives[0])
    others = [o for o in objectives if o is not up]
    return min(others, key=lambda o: (o.is_metric, o.direction != "min")), up


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
