"""The chart of a ladder: the metric and the effective speed-ups against compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from nas.common.scaling import MOST
from nas.report.charts import COLOURS, DIM, HEIGHT, INK, styled
from nas.report.ladder import Ladder, Rung, estimate_text
from nas.report.result import data_frame
from nas.report.units import FRACTION, header

if TYPE_CHECKING:
    import altair

WIDTH: Final = 380  # pixels of each panel
TICKS: Final = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50)
MARGIN: Final = 1.04  # factor between the outermost values and the ends of an axis
BEYOND: Final = 1.5  # the law is drawn up to so many times the compute of the outermost sizes


def ladder_chart(result: Ladder) -> altair.HConcatChart:
    """Return the chart of a ladder: the metric with the reference's law, and the speed-ups."""
    import altair as alt

    compared = result.comparison
    metric = next(iter(compared.metrics.values()))
    factor = 100.0 if metric.unit == FRACTION else 1.0
    rows = [_row(rung, factor) for rung in result.rungs]
    compute = [row["flops"] for row in rows]
    means = [row["mean"] for row in rows if row["mean"] is not None]
    bounds = [row[end] for row in rows for end in ("low", "high") if end in row]
    span = [compute[0] / BEYOND, compute[-1] * BEYOND]
    x = alt.X("flops:Q", **_axis("FLOPs of a training", span, sorted({*compute}), ".3~s"))
    title = header(metric.name, metric.unit)
    y = _axis(title, means) if metric.direction == "min" else {"title": title}

    names = [row.mechanism for row in compared.rows]
    legend = alt.Legend(orient="top", symbolOpacity=1)
    shades = alt.Scale(domain=names, range=[INK, *COLOURS])
    base = alt.Chart(data_frame(rows)).encode(
        x=x,
        color=alt.Color("mechanism:N", scale=shades, title=None, legend=legend),
        tooltip=["mechanism:N", "size:N", alt.Tooltip("mean:Q", format=".4~g"), "interval:N"],
    )
    left = [base.mark_point(filled=True, size=50, opacity=1).encode(y=alt.Y("mean:Q", **y))]
    for climb in [*result.climbs.values()][:1]:
        sign = factor if metric.direction == "min" else -factor
        line = [
            {"flops": flops, "law": sign * climb.law.loss(flops)} for flops in np.geomspace(*span)
        ]
        law = alt.Chart(data_frame(line)).mark_line(
            clip=True, color=DIM, strokeDash=[4, 3], strokeWidth=1.2
        )
        left.insert(0, law.encode(x=x, y=alt.Y("law:Q")))
    one = alt.Chart(data_frame([{"one": 1}])).mark_rule(color=DIM).encode(y="one:Q")
    title = f"effective speed-up over {compared.against}"
    speedup = alt.Y("speedup:Q", **_axis(title, [*bounds, 1.0], TICKS))
    rises = base.transform_filter("isValid(datum.speedup)")
    right = [
        one,
        rises.mark_rule(strokeWidth=1.4).encode(y=alt.Y("low:Q"), y2="high:Q"),
        rises.mark_line(strokeWidth=1.2).encode(y=speedup),
        rises.mark_point(filled=True, size=50, opacity=1).encode(y=speedup),
    ]
    panels = [alt.layer(*marks).properties(width=WIDTH, height=HEIGHT) for marks in (left, right)]
    caption = (
        f"logarithmic axes; dashed: the law of {compared.against}; bars: 95 % intervals; above 1: "
        f"{compared.against} needs longer for the same loss; {compared.seeds} seeds"
    )
    task = result.rungs[0].size.rpartition(" ")[0]
    return styled(alt.hconcat(*panels), f"Against {compared.against} on {task}", caption)


def _axis(
    title: str, values: Sequence[float], ticks: Sequence[float] = (), form: str = "~r"
) -> dict[str, Any]:
    """Return the title, a logarithmic scale for positive values, and by default five ticks."""
    import altair as alt

    low, high = min(values) / MARGIN, max(values) * MARGIN
    if not ticks:
        power = 10 ** np.floor(np.log10(high - low))
        step = power * next(
            part for part in (0.1, 0.2, 0.5, 1, 2) if high - low <= 7 * part * power
        )
        ticks = [float(tick) for tick in step * np.arange(1, 1 + high // step)]
    return {
        "title": title,
        "scale": alt.Scale(type="log", domain=[low, high], nice=False),
        "axis": alt.Axis(values=[t for t in ticks if low <= t <= high], format=form),
    }


def _row(rung: Rung, factor: float) -> dict[str, Any]:
    found, mean = rung.speedup, rung.cell.mean
    row = {
        "mechanism": rung.mechanism,
        "size": rung.size,
        "flops": rung.flops,
        "mean": None if mean is None else factor * mean,
    }
    if found is None:
        return row
    bounds = {"low": found.low or 1 / MOST, "high": found.high or MOST}
    return row | {"speedup": found.value, "interval": estimate_text(found), **bounds}
