"""A genome's graph as a matplotlib figure, for .png and .pdf files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from nas.genome import Genome
from nas.report.charts import DIM, DPI, STYLE, check_picture, write_figure
from nas.report.graph import HEIGHT, Box, extent, graph_svg, placed, wire
from nas.store.files import write_file

INCH: Final = 96.0  # pixels of the SVG
POINT: Final = INCH / 72


def write_graph(genome: Genome, path: Path) -> None:
    """Draw a graph into a file.

    Raises:
        RunError: the file's suffix is not that of a picture, or the file cannot be written.
    """
    check_picture(path)
    if path.suffix.lower() == ".svg":
        write_file(path, f"{graph_svg(genome)}\n".encode())
    else:
        write_figure(draw_graph(genome), path)


def draw_graph(genome: Genome) -> Any:
    """The picture of ``graph_svg`` as a matplotlib figure with a white background."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    boxes = placed(genome)
    left, right, height = extent(boxes)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=((right - left) / INCH, height / INCH), dpi=DPI)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_xlim(left, right)
        axes.set_ylim(height, 0)
        axes.set_axis_off()
        for box in boxes:
            for other in box.reads:
                _wire(axes, other, box)
        for box in boxes:
            if box.kind != "bend":
                _shape(axes, box)
    return figure


def _wire(axes: Any, start: Box, end: Box) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    y0, y1 = wire(start, end)
    middle = (y0 + y1) / 2
    places = [(start.x, y0), (start.x, middle), (end.x, middle), (end.x, y1)]
    curve = Curve(places, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])
    axes.add_patch(PathPatch(curve, fill=False, edgecolor="#8a8f99", linewidth=1.4 / POINT))


def _shape(axes: Any, box: Box) -> None:
    from matplotlib.colors import to_rgba
    from matplotlib.patches import FancyBboxPatch

    is_stream = box.kind == "stream"
    style = f"round,pad=0,rounding_size={HEIGHT / 2 if is_stream else 6}"
    axes.add_patch(
        FancyBboxPatch(
            (box.x - box.width / 2, box.y),
            box.width,
            HEIGHT,
            boxstyle=style,
            facecolor="#f4f4f4" if is_stream else to_rgba(box.colour, 0.09),
            edgecolor="#aaaaaa" if is_stream else box.colour,
            linewidth=1.4 / POINT,
        )
    )
    middle = {"ha": "center", "va": "baseline"}
    axes.text(box.x, box.y + (17 if box.more else 24), box.words, size=12.5 / POINT, **middle)
    if box.more:
        axes.text(box.x, box.y + 31, box.more, size=10.5 / POINT, color=DIM, **middle)
