"""Cost against sequence length as a picture: PNG, SVG or PDF.

One line a mechanism on two logarithmic axes, named from the dearest at the longest length down.
Lines differ in darkness and dashes too, so that the picture can be read in grey.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from nas.report.plot import FONT, new_axes, new_figure, write_figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nas.report.costs import Block, Costed

# From dark to light within the blues and the oranges of the other pictures.
COLOURS: Final = ("#16213e", "#d9660c", "#1f4e9c", "#8a8f99", "#7a3b00", "#5b8fd9", "#4a4f59")
DASHES: Final[tuple[Any, ...]] = ("solid", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))


def plot_costs(found: Sequence[Costed], block: Block, path: Path) -> None:
    """Draw multiply-adds against length into a file, whole or not at all.

    Raises:
        RunError: the file cannot be written.
    """
    write_figure(draw_costs(found, block), path)


def draw_costs(found: Sequence[Costed], block: Block) -> Any:
    """The picture as a matplotlib figure."""
    caption = f"dim {block.dim} · {block.heads} heads · batch 1"
    with new_figure("Cost against sequence length", caption) as figure:
        across, up = "sequence length (tokens)", "multiply-adds of one attention block"
        axes = new_axes(figure, across, up)
        _scale(axes, block.lengths)
        lines = []
        looks = zip(cycle(COLOURS), cycle(DASHES), strict=False)
        for one, (colour, dashes) in zip(found, looks, strict=False):
            macs = [one.costs[tokens].macs for tokens in block.lengths]
            lines += axes.plot(
                block.lengths,
                macs,
                label=one.source.name,
                color=colour,
                linestyle=dashes,
                linewidth=1.5,
            )
        lines.sort(key=lambda line: -line.get_ydata()[-1])
        beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        axes.legend(handles=lines, **beside, frameon=False, fontsize=FONT, handlelength=3.5)
        figure.canvas.draw()
    return figure


def _scale(axes: Any, lengths: Sequence[int]) -> None:
    from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, NullLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
