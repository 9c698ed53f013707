"""Write a page: one HTML file that shows runs and needs no other file.

A strict content security policy allows only the page's own script and style, identified by their
hashes; it forbids requests, other scripts and forms. Everything that the page can show is HTML in
the file: the script only selects, sorts, searches and shows tooltips.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from nas.common.arguments import public
from nas.common.errors import RunError
from nas.common.system import garbage_collection_paused
from nas.report.charts import BLUE, COLOURS, DIM, GREEN, GREY, GRID, INK, ORANGE, PAPER, svg_of
from nas.report.front import headline
from nas.report.front_chart import front_chart
from nas.report.page.mechanism import mechanisms
from nas.report.page.rendering import address, render
from nas.report.page.sections import confirmations, explanations, table
from nas.report.run_view import RunView
from nas.report.verdict import verdict_of
from nas.store import RUNS, find_run, open_run
from nas.store.files import write_file

HERE: Final = resources.files("nas.report.page")
# Widths of the chart of the front, in pixels; page.css shows one of the two pictures.
WIDTHS: Final = {"wide": 820, "narrow": 300}
# The style sheet's variable of each colour of the chart, for light and dark.
THEME: Final = {
    PAPER: "card", INK: "ink", DIM: "muted", GRID: "faint", GREY: "cloud", BLUE: "run-0",
    ORANGE: "named", GREEN: "fresh", **{c: f"run-{i}" for i, c in enumerate(COLOURS)},
}  # fmt: skip


@public
def write_report(
    runs: str | Path | Sequence[str | Path], path: str | Path, *, folder: str | Path = RUNS
) -> Path:
    """Write one HTML file that shows runs, as ``nas report`` does.

    Args:
        runs: names or paths of runs, or ``latest``; several runs are overlaid in one figure.
        path: path of the file; parent folders are created.
        folder: folder that contains the runs.

    Returns:
        The path of the file.

    Raises:
        RunError: there is no such run, it cannot be read, or the file cannot be written.
    """
    labels = [runs] if isinstance(runs, str | Path) else list(runs)
    if not labels:
        raise RunError("a report needs a run; expected at least one name or path.")
    target = Path(path)
    if target.suffix.lower() not in {".html", ".htm"}:
        raise RunError(f"{target}: found the ending {target.suffix or 'none'!r}; expected .html.")
    with garbage_collection_paused():  # it is slow while the many objects of a run are created
        text = page(_views([str(label) for label in labels], Path(folder)))
    write_file(target, text.encode())
    return target


def page(views: Sequence[RunView]) -> str:
    """Return the HTML of a page that shows runs."""
    style, script = ((HERE / name).read_text("utf-8") for name in ("page.css", "page.js"))
    pictures, caption = _front(views)
    shown = next((view for view in views if view.members), views[0])
    return render(
        "page.html",
        views=views,
        style=Markup(style),  # noqa: S704 - ours
        style_hash=_hash(style),
        script=Markup(script),  # noqa: S704 - ours
        script_hash=_hash(script),
        verdicts=[
            (headline(view), f"{view.sessions[0].started:%Y-%m-%d}", verdict_of(view))
            for view in views
        ],
        pictures=pictures,
        caption=caption,
        table=table(views),
        mechanisms=[mechanism for view in views for mechanism in mechanisms(view)],
        selected=address(shown.name, shown.members[0].digest) if shown.members else "",
        confirmed=confirmations(views),
        explanations=explanations(views),
    )


def _views(labels: Sequence[str], folder: Path) -> list[RunView]:
    """Return views of the runs; runs with the same name get numbers, such as "first (2)"."""
    views: list[RunView] = []
    for label in labels:
        with open_run(find_run(label, folder)) as run:
            same = sum(view.name.partition(" (")[0] == run.name for view in views)
            name = f"{run.name} ({same + 1})" if same else run.name
            views.append(RunView.read(run, label, name))
    return views


def _front(views: Sequence[RunView]) -> tuple[dict[str, Markup], str]:
    """Return pictures of the fronts by name of ``WIDTHS``, and their caption; or none, and why."""
    pictures: dict[str, Markup] = {}
    caption = ""
    for name, width in WIDTHS.items():
        try:
            chart = front_chart(*views, width=width, link=lambda v, c: address(v.name, c.digest))
        except RunError as error:
            return {}, str(error)
        specification: dict[str, Any] = chart.to_dict(validate=False)  # altair's own check is slow
        caption = specification.pop("title")["subtitle"]
        svg = svg_of(specification | {"background": None, "padding": 6})
        # Vega escapes the texts.
        pictures[name] = Markup(_themed(svg))  # noqa: S704
    return pictures, caption


def _themed(svg: str) -> str:
    for colour, variable in THEME.items():
        svg = svg.replace(f'="{colour}"', f'="var(--{variable})"')
    svg = re.sub(r' (aria-[a-z]+|role)="[^"]*"', "", svg)  # tooltips repeat the labels
    # Vega gives each link an address in front of the fragment. The table serves the keyboard.
    return re.sub(r'<a xlink:href="[^"#]*#', '<a tabindex="-1" href="#', svg)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
