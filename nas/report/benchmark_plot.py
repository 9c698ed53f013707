"""A benchmark as a picture: a panel a task, a line a mechanism: its lead over another one.

Leads point right whatever a task measures. The bar is the 95 % interval of the mean difference; its
colour is the verdict, after Holm's correction over the whole picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nas.common.differences import LEVEL
from nas.report.figure import DIM, FONT, new_panels
from nas.report.units import FRACTION

if TYPE_CHECKING:
    from nas.report.benchmark import BenchmarkCell, BenchmarkResult
    from nas.report.result import MetricInfo

BLUE, ORANGE, GREY = "#1f4e9c", "#d9660c", "#8a8f99"
LOOKS: Final = {
    "better": {"color": BLUE, "marker": "o"},
    "worse": {"color": ORANGE, "marker": "s"},
    "undecided": {"color": GREY, "marker": "o", "markerfacecolor": "white"},
}


def draw_benchmark(result: BenchmarkResult) -> Any:
    """The result of ``nas.benchmark`` as a matplotlib figure."""
    rows = [row for row in result.mechanisms if row.source != result.against]
    caption = (
        f"mean difference over {result.seeds} pairs of trainings that share a seed, with its "
        f"95 % interval · blue: better, orange: worse, p below {LEVEL} after Holm's correction"
    )
    title = f"Beside {result.against}"
    across = [_across(metric) for metric in result.tasks.values()]
    with new_panels(title, caption, across, height=1.6 + 0.26 * len(rows)) as (figure, panels):
        for axes, (task, metric) in zip(panels, result.tasks.items(), strict=True):
            axes.set_title(task, fontsize=FONT + 0.5, loc="left")
            axes.axvline(0, color=DIM, linewidth=0.8)
            axes.tick_params(labelsize=FONT - 1)
            for place, row in enumerate(rows):
                _draw(axes, -place, row.tasks.get(task), metric)
        panels[0].set_yticks([-i for i in range(len(rows))], [row.source for row in rows])
        panels[0].set_ylim(0.7 - len(rows), 0.7)
        figure.canvas.draw()
    return figure


def _draw(axes: Any, place: int, cell: BenchmarkCell | None, metric: MetricInfo) -> None:
    difference = cell.difference if cell else None
    if cell is None or difference is None:
        why = "not there" if cell is None else "failed" if cell.failed else ""
        axes.text(0, place, f" {why}", size=FONT - 1.5, color=DIM, va="center")
        return
    scale = _scale(metric)
    ends = sorted(scale * difference[end] for end in ("low", "high"))
    mean, look = scale * difference["mean"], LOOKS[cell.verdict or "undecided"]
    bars = [[mean - ends[0]], [ends[1] - mean]]
    axes.errorbar(mean, place, xerr=bars, markersize=4.5, linewidth=1.3, **look)


def _scale(metric: MetricInfo) -> float:
    """Points of a hundred where it is a fraction, and a lead to the right."""
    size = 100.0 if metric.unit == FRACTION else 1.0
    return size if metric.direction == "max" else -size


def _across(metric: MetricInfo) -> str:
    if metric.unit == FRACTION:
        return f"points of {metric.name}"
    sign = "lower " if metric.direction == "min" else ""
    return f"{sign}{metric.name}".replace("_", " ")
