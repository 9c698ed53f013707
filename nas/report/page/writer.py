"""Write a page: one HTML file that shows runs and needs no other file.

A strict content security policy allows only the page's own script and style, identified by their
hashes; it forbids requests, other scripts and forms. The data are encoded as base64, which cannot
contain the end tag of the element around them. The page's script is the concatenation of all files
of ``SCRIPTS``, which share one scope.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from nas.common.errors import RunError
from nas.common.interrupts import garbage_collection_paused
from nas.report.front import headline
from nas.report.page.figures import confirmed_figure, course_figure, front_figure
from nas.report.page.packing import pack_page, page_columns, shared_columns
from nas.report.page.rendering import render
from nas.report.page.sections import (
    explanations,
    failures_of,
    incidents_of,
    operators_of,
)
from nas.report.run_view import RunView
from nas.report.verdict import verdict_of
from nas.store import RUNS, find_run, open_run
from nas.store.files import write_file

if TYPE_CHECKING:
    from nas.report.page.packing import Table

# Columns of ``page_columns`` that the static table of the front omits.
LEFT_OUT: Final = ("operator", "state")
HERE: Final = resources.files("nas.report.page")
# Only functions read the constants of scripts, so the order matters only for the last script.
SCRIPTS: Final = (
    *("dom", "run", "state", "filter", "scale", "marks", "labels", "tip", "pointer"),
    *("front", "table", "curves", "edits", "graph", "mechanism", "timeline", "main"),
)


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
    style, script = (HERE / "page.css").read_text("utf-8"), page_script()
    tables = [page_columns(view) for view in views]
    figures = (confirmed_figure(view) for view in views)
    return render(
        "page.html",
        views=views,
        style=Markup(style),  # noqa: S704 - ours
        style_hash=_hash(style),
        script=Markup(script),  # noqa: S704 - ours
        script_hash=_hash(script),
        data=Markup(pack_page(views, tables)),  # noqa: S704 - base64
        verdicts=[(headline(view), f"{view.started:%Y-%m-%d}", verdict_of(view)) for view in views],
        front=front_figure(views),
        members=_members(views, tables),
        confirmed=[figure for figure in figures if figure],
        explanations=explanations(views),
        courses=[course_figure(views, over_time=over_time) for over_time in (False, True)],
        searches=[
            {
                "view": view,
                "operators": operators_of(view),
                "failures": failures_of(view),
                "incidents": incidents_of(view),
            }
            for view in views
        ],
    )


def page_script() -> str:
    """Return the page's script: all files of ``SCRIPTS`` in order, concatenated."""
    return "\n".join((HERE / "scripts" / f"{name}.js").read_text("utf-8") for name in SCRIPTS)


def _views(labels: Sequence[str], folder: Path) -> list[RunView]:
    """Return views of the runs; runs with the same name get numbers, such as "first (2)"."""
    views: list[RunView] = []
    for label in labels:
        with open_run(find_run(label, folder)) as run:
            same = sum(view.name.partition(" (")[0] == run.name for view in views)
            name = f"{run.name} ({same + 1})" if same else run.name
            views.append(RunView.read(run, label, name))
    return views


def _members(views: Sequence[RunView], tables: Sequence[Table]) -> dict[str, Any]:
    """Return the Pareto fronts of runs as a static table, for printing and without scripts."""
    columns = [column for column in shared_columns(tables) if column.key not in LEFT_OUT]
    rows = []
    for view, table in zip(views, tables, strict=True):
        by_key = {column.key: column for column in table}
        for member in view.members:
            cells = [by_key[c.key].cell(member) if c.key in by_key else "" for c in columns]
            rows.append([view.name if len(views) > 1 else "", view.called(member.key), *cells])
    heads = ["run", "id", *(column.title for column in columns)]
    used = [any(row[place] for row in rows) for place in range(len(heads))]
    return {"heads": [*compress(heads, used)], "rows": [[*compress(row, used)] for row in rows]}


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
