"""Write a page: one HTML file that shows runs and asks for nothing else.

A strict content security policy allows the page's script and style by their hashes, and nothing
beside them: no request, no other script, no form. A page that ``nas watch`` serves (serving.py) may
ask its own server. Data are base64, which cannot end the element that holds them. The scripts share
one scope: the page's script is their texts in the order of ``SCRIPTS``.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from nas.common.errors import RunError
from nas.report.front import front_columns
from nas.report.page.answers import benchmarks, explanations
from nas.report.page.code import code_of, roles
from nas.report.page.columns import Columns
from nas.report.page.figures import confirmed_figure, course_figure, front_figure
from nas.report.page.packing import pack_run
from nas.report.page.rendering import render
from nas.report.page.search import failures_of, incidents_of, operators_of
from nas.report.run_view import RunView, task_and_data
from nas.report.text import plural
from nas.report.verdict import verdict_of
from nas.store import RUNS, find_run, open_run
from nas.store.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence


HERE: Final = resources.files("nas.report.page")
# A constant of a script is read by functions alone, so only the last one's place matters.
SCRIPTS: Final = (
    *("dom", "format", "data", "run", "state", "filter", "scale", "marks", "labels", "tip"),
    *("pointer", "front", "columns", "table", "curves", "edits", "graph", "mechanism"),
    *("timeline", "watch", "main"),
)


@dataclass(frozen=True)
class Watched:
    """The change token of a served page's run, and seconds between its requests for another."""

    stamp: str
    pause_seconds: float


def write_report(
    runs: str | Path | Sequence[str | Path], path: str | Path, *, folder: str | Path = RUNS
) -> Path:
    """Write one HTML file that shows runs: the function behind ``nas report``.

    Args:
        runs: names or paths of runs, or ``latest``; several are shown over each other.
        path: of the file; parent folders are created.
        folder: the folder that runs are in.

    Raises:
        RunError: there is no such run, it cannot be read, or the file cannot be written.
    """
    labels = [runs] if isinstance(runs, str | Path) else list(runs)
    if not labels:
        raise RunError("a report needs a run; expected at least one name or path.")
    target = Path(path)
    if target.suffix.lower() not in {".html", ".htm"}:
        raise RunError(f"{target}: found the ending {target.suffix or 'none'!r}; expected .html.")
    text = page(_contents([str(label) for label in labels], Path(folder)))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, text.encode())
    except OSError as error:
        raise RunError(f"{target}: cannot be written ({error.strerror}).") from error
    return target


def page(contents: Sequence[RunView], watched: Watched | None = None) -> str:
    """The text of the page; a served one asks its server whether its run has changed."""
    columns = Columns()
    header_ = {"runs": [pack_run(c, code_of(c), columns) for c in contents], "roles": roles()}
    style, script = (HERE / "page.css").read_text("utf-8"), page_script()
    figures = (confirmed_figure(content) for content in contents)
    return render(
        "page.html",
        contents=contents,
        watched=watched,
        style=Markup(style),  # noqa: S704 - ours
        style_hash=_hash(style),
        script=Markup(script),  # noqa: S704 - ours
        script_hash=_hash(script),
        data=Markup(columns.packed(header_)),  # noqa: S704 - base64
        verdicts=[(_about(content), verdict_of(content)) for content in contents],
        front=front_figure(contents),
        members=_members(contents),
        confirmed=[figure for figure in figures if figure],
        benchmarks=benchmarks(contents),
        explanations=explanations(contents),
        courses=[course_figure(contents, over_time=over_time) for over_time in (False, True)],
        searches=[
            {
                "content": content,
                "operators": operators_of(content),
                "failures": failures_of(content),
                "incidents": incidents_of(content),
            }
            for content in contents
        ],
    )


def page_script() -> str:
    """All scripts as one."""
    return "\n".join((HERE / "scripts" / f"{name}.js").read_text("utf-8") for name in SCRIPTS)


def _contents(labels: Sequence[str], folder: Path) -> list[RunView]:
    """The runs' contents; runs of one name are numbered."""
    contents: list[RunView] = []
    for label in labels:
        with open_run(find_run(label, folder)) as run:
            same = sum(content.name.partition(" (")[0] == run.name for content in contents)
            name = f"{run.name} ({same + 1})" if same else run.name
            contents.append(RunView.read(run, label, name))
    return contents


def _about(content: RunView) -> list[str]:
    """Which run it is and how it stands."""
    setup = content.setup
    done = f"{len(content.generations)} of {plural(setup.generations, 'generation')}"
    return [
        f"run {content.name}",
        f"space {setup.space.name}",
        f"task {task_and_data(setup)}",
        f"seed {setup.seed}",
        setup.algorithm,
        f"{content.status}, {done}",
        f"{content.started:%Y-%m-%d}",
    ]


def _members(contents: Sequence[RunView]) -> dict[str, Any]:
    """The fronts as a table, for readers without scripts and for paper."""
    tables = [{column.key: column for column in front_columns(content)} for content in contents]
    titles = {key: c.title for columns in tables for key, c in columns.items() if c.title}
    rows = [
        {"run": content.name if len(contents) > 1 else ""}
        | {key: columns[key].cell(member) for key in titles if key in columns}
        for content, columns in zip(contents, tables, strict=True)
        for member in content.members
    ]
    heads = {
        key: title
        for key, title in ({"run": "run"} | titles).items()
        if any(row.get(key) for row in rows)
    }
    return {
        "heads": [*heads.values()],
        "rows": [[row.get(key, "") for key in heads] for row in rows],
    }


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
