"""Cost against sequence length as a picture: PNG, SVG or PDF.

One line a mechanism on two logarithmic axes, named where it ends; beside it, where they were
measured, the times of the same mechanisms. Lines differ in darkness and dashes too, so that the
picture can be read in grey.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from nas.report.plot import DPI, INCHES, STYLE, write_figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nas.report.costs import Block, Costed

# From dark to light within the blues and the oranges of the other pictures.
COLOURS: Final = ("#16213e", "#d9660c", "#1f4e9c", "#8a8f99", "#7a3b00", "#5b8fd9", "#4a4f59")
DASHES: Final[tuple[Any, ...]] = ("solid", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
FONT: Final = 8.5
LINE_HEIGHT: Final = 1.25  # of a label, in font sizes
POINTS_TO_LABEL: Final = 26.0
WIDER: Final = 0.6  # a picture for each panel after the first

# A mechanism's values by length.
Lines: TypeAlias = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class Panel:
    """One pair of axes: what goes up and in which unit, and the lines."""

    title: str
    lines: Lines
    unit: str = ""


def plot_costs(found: Sequence[Costed], block: Block, path: Path) -> None:
    """Draw cost against length into a file, whole or not at all.

    Raises:
        RunError: the file cannot be written.
    """
    write_figure(draw_panels(panels(found, block), _caption(block)), path)


def panels(found: Sequence[Costed], block: Block) -> list[Panel]:
    """Multiply-adds, and the time of a forward pass where it was measured."""
    macs = {one.source.name: {n: float(c.macs) for n, c in one.costs.items()} for one in found}
    drawn = [Panel("multiply-adds of one attention block", macs)]
    if block.readings is None:
        return drawn
    times = {}
    for one in found:
        readings = {n: block.reading(one.source, n, "forward") for n in block.lengths}
        times[one.source.name] = {n: r.ms / 1000 for n, r in readings.items() if r is not None}
    if any(times.values()):
        drawn.append(Panel(f"time of a forward pass ({block.device})", times, "s"))
    return drawn


def draw_panels(drawn: Sequence[Panel], caption: str) -> Any:
    """The picture as a matplotlib figure."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06)
        size = (INCHES[0] * (1 + WIDER * (len(drawn) - 1)), INCHES[1])
        figure = Figure(figsize=size, dpi=DPI, layout=layout)
        FigureCanvasAgg(figure)
        pairs = figure.subplots(1, len(drawn), squeeze=False)[0]
        for axes, panel in zip(pairs, drawn, strict=True):
            _draw(axes, panel)
        figure.suptitle("Cost against sequence length", x=0.02, ha="left", weight="bold")
        figure.supxlabel(caption, x=0.02, ha="left", size=8, color="#555555")
        # Names take room, so they stand beside the lines while the layout is made, then move.
        names = [_name_lines(axes, panel.lines) for axes, panel in zip(pairs, drawn, strict=True)]
        figure.canvas.draw()
        figure.set_layout_engine("none")
        for axes, texts in zip(pairs, names, strict=True):
            _separate(axes, texts)
    return figure


def spread_apart(places: Sequence[float], gap: float, top: float) -> list[float]:
    """Places at least ``gap`` from each other, in the same order, each near where it was.

    Neighbours that are too near become a group around the mean of what its members asked for;
    groups that then meet become one. Nothing stands higher than ``top``.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(places)), key=lambda i: places[i]):
        group = [index]
        while groups and _bottom(group, places, gap) < _top(groups[-1], places, gap) + gap:
            group = groups.pop() + group
        groups.append(group)
    found = [0.0] * len(places)
    for group in reversed(groups):
        for rank, index in reversed(list(enumerate(group))):
            found[index] = min(_bottom(group, places, gap) + rank * gap, top)
            top = found[index] - gap
    return found


def _bottom(group: Sequence[int], places: Sequence[float], gap: float) -> float:
    return sum(places[i] for i in group) / len(group) - gap * (len(group) - 1) / 2


def _top(group: Sequence[int], places: Sequence[float], gap: float) -> float:
    return _bottom(group, places, gap) + gap * (len(group) - 1)


def _draw(axes: Any, panel: Panel) -> None:
    from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, NullLocator

    lengths = sorted({n for values in panel.lines.values() for n in values})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("sequence length (tokens)")
    axes.set_ylabel(panel.title)
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(EngFormatter(panel.unit, sep=" "))
    axes.grid(color="#e6e8ec", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for place, (name, values) in enumerate(panel.lines.items()):
        style = {"color": _colour(place), "linestyle": _dashes(place)}
        axes.plot(list(values), list(values.values()), linewidth=1.5, label=name, **style)


def _name_lines(axes: Any, lines: Lines) -> list[Any]:
    """Each line's name, to the right of its end and joined to it.

    A line that ends early, for lack of memory, ends in a cross, its name to the left.
    """
    from matplotlib.patheffects import withStroke

    last = max(n for values in lines.values() for n in values)
    names = []
    for place, (name, values) in enumerate(lines.items()):
        if not values:
            continue
        end, style = max(values.items()), {"color": _colour(place), "fontsize": FONT}
        if end[0] < last:
            offset = {"xytext": (-5, 5), "textcoords": "offset points"}
            halo = [withStroke(linewidth=2.0, foreground="white")]
            axes.annotate(name, end, ha="right", path_effects=halo, **offset, **style)
            axes.plot(*end, marker="x", color=_colour(place))
            continue
        leader = {"arrowstyle": "-", "color": _colour(place), "linewidth": 0.5, "shrinkA": 0}
        names.append(
            axes.annotate(
                name,
                end,
                xytext=(POINTS_TO_LABEL, 0),
                textcoords="offset points",
                va="center",
                arrowprops={**leader, "relpos": (0, 0.5), "shrinkB": 1},
                **style,
            )
        )
    return names


def _separate(axes: Any, names: Sequence[Any]) -> None:
    """Move names up and down until none stands on another."""
    scale = DPI / 72
    heights = [float(axes.transData.transform(text.xy)[1]) / scale for text in names]
    places = spread_apart(heights, FONT * LINE_HEIGHT, axes.get_window_extent().y1 / scale)
    for text, height, place in zip(names, heights, places, strict=True):
        text.set_position((POINTS_TO_LABEL, place - height))


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _dashes(place: int) -> Any:
    return DASHES[place % len(DASHES)]


def _caption(block: Block) -> str:
    parts = [f"dim {block.dim}", f"{block.heads} heads", "batch 1"]
    if block.readings is not None:
        parts.append(f"times: float32, the fastest of {block.rounds} interleaved rounds")
        if None in block.readings.values():
            parts.append("cross: what is longer did not fit into memory")
    return " · ".join(parts)
