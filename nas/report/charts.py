"""What charts have in common: scales, colours, fonts and files.

Each chart is an ``altair.Chart``, which notebooks display and ``write_chart`` writes as PNG, SVG or
PDF. Marks differ in shape and lightness, so that charts are readable in greyscale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.common.errors import RunError
from nas.store.files import write_file

if TYPE_CHECKING:
    import altair

FORMATS: Final = (".png", ".svg", ".pdf")
SCALE: Final = 2.0  # pixels of a PNG file for each pixel of the chart
WIDTH, HEIGHT = 640, 400
LOGARITHMIC_FROM: Final = 20.0  # largest over smallest cost
PAPER, INK, DIM, GRID = "#ffffff", "#1b1f24", "#5b6470", "#e6e8ec"
GREY, BLUE, ORANGE, GREEN = "#b8bcc4", "#1f4e9c", "#c9580a", "#18794e"
COLOURS: Final = (BLUE, "#8a3ea8", "#0e7c86", "#8a6d00", "#a3325c", "#4a5568")  # of several runs


def check_picture(path: Path) -> None:
    """Raise RunError unless the name of a picture's file ends in one of ``FORMATS``."""
    if path.suffix.lower() not in FORMATS:
        raise RunError(
            f"{path}: found the ending {path.suffix or 'none'!r}; expected a picture's: "
            f"{', '.join(FORMATS)}."
        )


def write_chart(chart: altair.TopLevelMixin, path: Path) -> None:
    """Write a chart into a file in the format of its ending; raise RunError if that fails."""
    write_svg(svg_of(chart.to_dict()), path)


def svg_of(specification: Mapping[str, Any]) -> str:
    """Return the picture of a Vega-Lite specification as the text of an SVG element."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(dict(specification)))


def write_svg(svg: str, path: Path) -> None:
    """Write a picture as ``write_chart`` does; other formats than SVG get a white background."""
    import vl_convert

    kind = path.suffix.lower()
    if kind == ".svg":
        write_file(path, f"{svg}\n".encode())
        return
    head, bracket, rest = svg.replace("currentColor", INK).partition(">")
    opaque = f'{head}{bracket}<rect x="-1000" width="9000" height="9000" fill="white"/>{rest}'
    if kind == ".pdf":
        write_file(path, vl_convert.svg_to_pdf(opaque))
    else:
        write_file(path, vl_convert.svg_to_png(opaque, scale=SCALE))


@dataclass(frozen=True)
class ChartScale:
    """A scale of a chart: its domain, its length in pixels, and whether it is logarithmic."""

    low: float
    high: float
    length: float
    is_log: bool = False

    @classmethod
    def of(cls, values: Iterable[float], length: float, *, may_be_log: bool = False) -> ChartScale:
        """Return a scale for the values, with a margin."""
        low, high = min(values := [*values]), max(values)
        if may_be_log and low > 0 and high / low > LOGARITHMIC_FROM:
            return cls(low / 1.15, high * 1.15, length, is_log=True)
        margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
        return cls(low - margin, high + margin, length)

    def pixels(self, value: float) -> float:
        """Return the distance of a value from the low end, in pixels."""
        values = self.low, self.high, value
        low, high, value = map(math.log, values) if self.is_log else values
        return self.length * (value - low) / (high - low)

    def scale(self) -> Any:
        """Return the scale as an ``altair.Scale``."""
        import altair as alt

        kind = "log" if self.is_log else "linear"
        return alt.Scale(type=kind, domain=[self.low, self.high], nice=False, zero=False)

    def axis(self, title: str, **options: Any) -> Any:
        """Return an ``altair.Axis`` with this title."""
        import altair as alt

        is_large = max(abs(self.low), abs(self.high)) >= 10_000
        form = "~s" if is_large else "~f"
        return alt.Axis(title=title, format=form, tickCount=self.length // 60, **options)


def styled(chart: Any, title: str, caption: str) -> Any:
    """Return a chart with title, caption, fonts and the colours of all charts."""
    import altair as alt

    text = alt.Title(title, subtitle=caption, anchor="start", subtitleColor=DIM, offset=12)
    return (
        chart.properties(title=text, background=PAPER, padding=14)
        .configure(font="Liberation Sans, Arial, Helvetica, sans-serif")
        .configure_axis(
            labelColor=INK, titleColor=INK, titleFontWeight="normal", gridColor=GRID,
            domainColor=DIM, tickColor=DIM, labelFontSize=11, titleFontSize=12,
        )
        .configure_view(strokeOpacity=0)
        .configure_legend(labelFontSize=11, symbolOpacity=1, labelColor=INK)
        .configure_title(fontSize=14, subtitleFontSize=11, color=INK)
    )  # fmt: skip
