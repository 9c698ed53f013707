"""Cost against sequence length as a picture.

One line a mechanism on two logarithmic axes, named from the dearest at the longest length down.
Lines differ in darkness and dashes too, so that the picture can be read in grey.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from nas.report.figure import FONT, new_axes

if TYPE_CHECKING:
    from nas.report.costs import CostTable

# From dark to light within the blues and the oranges of the other pictures.
COLOURS: Final = ("#16213e", "#d9660c", "#1f4e9c", "#8a8f99", "#7a3b00", "#5b8fd9", "#4a4f59")
DASHES: Final[tuple[Any, ...]] = ("solid", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))


def draw_costs(table: CostTable) -> Any:
    """Multiply-adds against length, as a matplotlib figure."""
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
        lines = sorted(axes.lines, key=lambda line: -line.get_ydata()[-1])
        beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        axes.legend(handles=lines, **beside, frameon=False, fontsize=FONT, handlelength=3.5)
        axes.figure.canvas.draw()
    return axes.figure
