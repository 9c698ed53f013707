"""What all pictures share: formats, size, style, and a file that is written whole or not at all.

matplotlib is used without a window and without its global state.
"""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any, Final

from nas.common.errors import RunError
from nas.report.files import write_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

FORMATS: Final = (".png", ".svg", ".pdf")
INCHES: Final = (8.0, 16 / 3)  # 1200 x 800 pixels
DPI: Final = 150
FONT: Final = 8.5
DIM: Final = "#555555"
# Names may hold a dollar sign, which would begin a formula.
STYLE: Final = {"svg.hashsalt": "nas", "font.size": 9.5, "text.parse_math": False}


def check_picture(path: Path) -> None:
    """Refuse a picture of a kind that cannot be drawn, before anything else is done.

    Raises:
        RunError: the name does not end in one of ``FORMATS``.
    """
    if path.suffix.lower() not in FORMATS:
        raise RunError(
            f"{path}: found the ending {path.suffix or 'none'!r}; expected a picture's: "
            f"{', '.join(FORMATS)}."
        )


@contextlib.contextmanager
def new_axes(title: str, caption: str, across: str, up: str) -> Iterator[Any]:
    """Axes with titles on a quiet grid; their figure has a title above and a caption below."""
    with new_panels(title, caption, [across]) as (_, (axes,)):
        axes.set_ylabel(up)
        yield axes


@contextlib.contextmanager
def new_panels(
    title: str, caption: str, across: Sequence[str], height: float = INCHES[1]
) -> Iterator[tuple[Any, list[Any]]]:
    """A figure, and axes side by side in it, which share what goes up; height in inches."""
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
        figure.supxlabel(caption, x=0.02, ha="left", size=8, color=DIM)
        panels = [*figure.subplots(1, len(across), sharey=True, squeeze=False)[0]]
        for axes, name in zip(panels, across, strict=True):
            axes.set_xlabel(name)
            axes.grid(color="#e6e8ec", linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
        yield figure, panels


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
    write_file(path, content.getvalue())
