"""Cost against sequence length as a picture: PNG, SVG or PDF.

One line a mechanism on two logarithmic axes, named where it ends. Lines differ in darkness and
dashes too, so that the picture can be read in grey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nas.report.plot import DPI, new_figure, write_figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from nas.report.costs import Block, Costed

# From dark to light within the blues and the oranges of the other pictures.
COLOURS: Final = ("#16213e", "#d9660c", "#1f4e9c", "#8a8f99", "#7a3b00", "#5b8fd9", "#4a4f59")
DASHES: Final[tuple[Any, ...]] = ("solid", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
FONT: Final = 8.5
LINE_HEIGHT: Final = 1.25  # of a label, in font sizes
POINTS_TO_LABEL: Final = 26.0


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
        axes = figure.add_subplot()
        _style(axes, block.lengths)
        names = []
        for place, one in enumerate(found):
            macs = {tokens: cost.macs for tokens, cost in one.costs.items()}
            names.append(_line(axes, one.source.name, macs, place))
        # Names take space, so they stand beside the lines while the layout is made, then move.
        figure.canvas.draw()
        figure.set_layout_engine("none")
        _separate(axes, names)
    return figure


def spread_apart(places: Sequence[float], gap: float, top: float) -> list[float]:
    """Places at least ``gap`` from each other and not above ``top``: the lower of two gives way."""
    found = list(places)
    for index in sorted(range(len(places)), key=lambda i: -places[i]):
        found[index] = min(places[index], top)
        top = found[index] - gap
    return found


def _style(axes: Any, lengths: Sequence[int]) -> None:
    from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, NullLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("sequence length (tokens)")
    axes.set_ylabel("multiply-adds of one attention block")
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.grid(color="#e6e8ec", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _line(axes: Any, name: str, values: Mapping[int, int], place: int) -> Any:
    """A mechanism's line; its name, which is returned, to the right of its end and joined to it."""
    colour, dashes = COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)]
    axes.plot(
        *zip(*values.items(), strict=True),
        linewidth=1.5,
        label=name,
        color=colour,
        linestyle=dashes,
    )
    leader = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 1}
    return axes.annotate(
        name,
        max(values.items()),
        xytext=(POINTS_TO_LABEL, 0),
        textcoords="offset points",
        va="center",
        arrowprops={**leader, "relpos": (0, 0.5)},
        color=colour,
        fontsize=FONT,
    )


def _separate(axes: Any, names: Sequence[Any]) -> None:
    """Move names down until none stands on another."""
    scale = DPI / 72
    heights = [float(axes.transData.transform(text.xy)[1]) / scale for text in names]
    places = spread_apart(heights, FONT * LINE_HEIGHT, axes.get_window_extent().y1 / scale)
    for text, height, place in zip(names, heights, places, strict=True):
        text.set_position((POINTS_TO_LABEL, place - height))
