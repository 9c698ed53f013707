"""Figures of costs and comparisons, and helpers that all figures share; plot.py draws a front.

No window and no global state of matplotlib is used. Lines and marks also differ in darkness, dashes
and shape, so that figures are readable in greyscale.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.common.differences import LEVEL
from nas.common.errors import RunError
from nas.report.result import MetricInfo
from nas.report.units import FRACTION
from nas.store.files import write_file

if TYPE_CHECKING:
    from nas.report.comparison import Cell, Comparison
    from nas.report.costs import CostTable

FORMATS: Final = (".png", ".svg", ".pdf")
INCHES: Final = (8.0, 16 / 3)  # 1200 x 800 pixels
DPI: Final = 150
FONT: Final = 8.5
DIM, GREY, BLUE, ORANGE = "#555555", "#8a8f99", "#1f4e9c", "#d9660c"
# Names may contain a dollar sign, which would begin a formula.
STYLE: Final = {"svg.hashsalt": "nas", "font.size": 9.5, "text.parse_math": False}
# From dark to light.
COLOURS: Final = ("#16213e", ORANGE, BLUE, GREY, "#7a3b00", "#5b8fd9", "#4a4f59")
DASHES: Final[tuple[Any, ...]] = ("solid", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
VERDICTS: Final = {
    "better": {"color": BLUE, "marker": "o"},
    "worse": {"color": ORANGE, "marker": "s"},
    "undecided": {"color": GREY, "marker": "o", "markerfacecolor": "white"},
}


def check_picture(path: Path) -> None:
    """Raise RunError unless the name of a figure's file ends in one of ``FORMATS``."""
    if path.suffix.lower() not in FORMATS:
        raise RunError(
            f"{path}: found the ending {path.suffix or 'none'!r}; expected a picture's: "
            f"{', '.join(FORMATS)}."
        )


def display_in_notebooks() -> None:
    """Let a notebook display figures; elsewhere do nothing.

    Loading the backend that a notebook has chosen registers the display.
    """
    if "ipykernel" in sys.modules:
        from matplotlib import get_backend, pyplot

        pyplot.switch_backend(get_backend())


@contextlib.contextmanager
def new_axes(title: str, caption: str, across: str, up: str) -> Iterator[Any]:
    """Return a context manager that yields the axes of a new figure in the style of all figures.

    Args:
        title: title above the figure.
        caption: text below the figure.
        across: title of the horizontal axis.
        up: title of the vertical axis.
    """
    with new_panels(title, caption, [across]) as (_, (axes,)):
        axes.set_ylabel(up)
        yield axes


@contextlib.contextmanager
def new_panels(
    title: str, caption: str, across: Sequence[str], height: float = INCHES[1]
) -> Iterator[tuple[Any, list[Any]]]:
    """Return a context manager that yields a new figure in the style of all figures and its axes.

    Each item of the list of axes is a panel. Panels lie side by side and share the vertical scale.

    Args:
        title: title above the figure.
        caption: text below the figure.
        across: title of the horizontal axis of each panel.
        height: height of the figure in inches.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06)
        width = INCHES[0] * max(1.0, len(across) / 4)
        figure = Figure(figsize=(width, height), dpi=DPI, layout=layout)
        FigureCanvasAgg(figure)
        figure.suptitle(title, x=0.02, ha="left", weight="bold")
        figure.supxlabel(caption, x=0.02, ha="left", size=8, color=DIM, wrap=True)
        panels = [*figure.subplots(1, len(across), sharey=True, squeeze=False)[0]]
        for axes, name in zip(panels, across, strict=True):
            axes.set_xlabel(name)
            axes.grid(color="#e6e8ec", linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
        yield figure, panels


def write_figure(figure: Any, path: Path) -> None:
    """Write a figure into a file atomically; parent folders are created.

    Raises:
        RunError: the file cannot be written.
    """
    import matplotlib as mpl

    kind, content = path.suffix[1:].lower(), io.BytesIO()
    # Without a date the same values give the same file.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with mpl.rc_context(STYLE):
        figure.savefig(content, format=kind, dpi=DPI, metadata=metadata)
    write_file(path, content.getvalue())


def draw_costs(table: CostTable) -> Any:
    """Return a matplotlib figure with each mechanism's multiply-adds against sequence length."""
    from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, NullLocator

    caption = f"dim {table.dim} · {table.heads} heads · batch 1"
    across, up = "sequence length (tokens)", "multiply-adds of one attention block"
    with new_axes("Cost against sequence length", caption, across, up) as axes:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator(table.lengths))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
        looks = zip(cycle(COLOURS), cycle(DASHES), strict=False)
        for rows, (colour, dashes) in zip(table.by_source, looks, strict=False):
            macs = [row.cost.macs for row in rows]
            look = {"color": colour, "linestyle": dashes, "linewidth": 1.5}
            axes.plot(table.lengths, macs, label=rows[0].name, **look)
        # Names in the order of the lines' right ends.
        lines = sorted(axes.lines, key=lambda line: -line.get_ydata()[-1])
        beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        axes.legend(handles=lines, **beside, frameon=False, fontsize=FONT, handlelength=3.5)
        axes.figure.canvas.draw()
    return axes.figure


def draw_comparison(result: Comparison) -> Any:
    """Return a matplotlib figure of the differences between mechanisms and the reference.

    A panel for each part shows the mean difference of the metric with its 95 % confidence interval.
    Points to the right of zero are better than the reference, also for metrics that are minimised.
    The colour shows whether the difference is significant.
    """
    rows = [row for row in result.rows if row.mechanism != result.against]
    caption = (
        f"mean difference over {result.seeds} pairs of trainings that share a seed, with its "
        f"95 % interval · blue: better, orange: worse, p below {LEVEL} after Holm's correction"
    )
    titles = [
        f"points of {metric.name}"
        if metric.unit == FRACTION
        else f"{'lower ' if metric.direction == 'min' else ''}{metric.name}".replace("_", " ")
        for metric in result.metrics.values()
    ]
    height = 1.6 + 0.26 * len(rows)
    with new_panels(f"Compared with {result.against}", caption, titles, height) as (figure, panels):
        for axes, (part, metric) in zip(panels, result.metrics.items(), strict=True):
            axes.set_title(part, fontsize=FONT + 0.5, loc="left")
            axes.axvline(0, color=DIM, linewidth=0.8)
            axes.tick_params(labelsize=FONT - 1)
            for place, row in enumerate(rows):
                _draw_lead(axes, -place, row.parts.get(part), metric)
        panels[0].set_yticks([-i for i in range(len(rows))], [row.mechanism for row in rows])
        panels[0].set_ylim(0.7 - len(rows), 0.7)
        figure.canvas.draw()
    return figure


def _draw_lead(axes: Any, place: int, cell: Cell | None, metric: MetricInfo) -> None:
    lead = cell.difference if cell else None
    if cell is None or lead is None or lead.low is None or lead.high is None:
        why = "not there" if cell is None else "failed" if cell.failed else "one seed"
        axes.text(0, place, f" {why}", size=FONT - 1.5, color=DIM, va="center")
        return
    scale = (100.0 if metric.unit == FRACTION else 1.0) * (1 if metric.direction == "max" else -1)
    low, high = sorted((scale * lead.low, scale * lead.high))
    bars = [[scale * lead.mean - low], [high - scale * lead.mean]]
    look = VERDICTS[lead.verdict]
    axes.errorbar(scale * lead.mean, place, xerr=bars, markersize=4.5, linewidth=1.3, **look)
