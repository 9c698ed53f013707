"""Write a page: one HTML file that shows runs, and never asks for anything else.

A strict content policy allows the page's own script and style by their hashes, and nothing beside
them: no request, no other script, no form. A page that `nas watch` serves (serving.py) may ask its
own server. Data are base64, which cannot end the element that holds them. Scripts are ES modules of
one concern each (scripts/). Inline ones cannot import each other, so each becomes a function that
gives its exports, after those that it imports.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nas.common.errors import RunError
from nas.report.page.code import code_of, roles
from nas.report.page.columns import Columns
from nas.report.page.content import read_content
from nas.report.page.markup import Markup, element, join
from nas.report.page.packing import pack_run
from nas.report.page.sections import body
from nas.store import RUNS, find_run, open_run
from nas.store.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas.report.page.content import Content

HERE: Final = resources.files("nas.report.page")
MAIN: Final = "main"
_IMPORT: Final = re.compile(r'^import \{([^}]*)\} from "\./([a-z]+)\.js";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Watched:
    """What a page that is served knows of its run: its stamp, and how often to ask for another."""

    stamp: str
    pause_seconds: float


def write_report(
    runs: str | Path | Sequence[str | Path], path: str | Path, *, folder: str | Path = RUNS
) -> Path:
    """Write one HTML file that shows runs: what ``nas report`` does.

    Args:
        runs: names or paths of runs, or ``latest``; several are shown over each other.
        path: of the file.
        folder: the folder that runs are in.

    Raises:
        RunError: there is no such run, it cannot be read, or the file cannot be written.
    """
    given = [runs] if isinstance(runs, str | Path) else list(runs)
    if not given:
        raise RunError("a report needs a run; expected at least one name or path.")
    target = Path(path)
    if target.suffix.lower() not in {".html", ".htm"}:
        raise RunError(f"{target}: found the ending {target.suffix or 'none'!r}; expected .html.")
    text = page([*_contents([str(run) for run in given], Path(folder))])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, text.encode())
    except OSError as error:
        raise RunError(f"{target}: cannot be written ({error.strerror}).") from error
    return target


def page(contents: Sequence[Content], watched: Watched | None = None) -> str:
    """The page's text; one that is served may ask where it came from whether it is still right."""
    columns = Columns()
    header = {"runs": [pack_run(c, code_of(c), columns) for c in contents], "roles": roles()}
    style, script = (HERE / "page.css").read_text("utf-8"), bundle()
    connect = "; connect-src 'self'" if watched else ""
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        f"base-uri 'none'; form-action 'none'{connect}"
    )
    names = ", ".join(content.name for content in contents)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{names} · nas report"),
        element("style", Markup(style)),
    )
    data = element("script", Markup(columns.packed(header)), type="text/plain", id="data")
    code = element("script", Markup(script), type="module")
    whole = element(
        "html",
        head,
        element("body", join(body(contents), data, code)),
        lang="en",
        data_stamp=watched.stamp if watched else None,
        data_pause=str(watched.pause_seconds) if watched else None,
    )
    return f"<!doctype html>\n{whole}\n"


def bundle() -> str:
    """All scripts as one: each module a function that gives what it exports."""
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        if name in texts:
            return
        text = (HERE / "scripts" / f"{name}.js").read_text("utf-8")
        for _, other in _IMPORT.findall(text):
            add(other)
        exported = ", ".join(_EXPORT.findall(text))
        inner = _EXPORT.sub(lambda found: found[0].removeprefix("export "), text)
        inner = _IMPORT.sub(r"const {\1} = modules.\2;", inner).strip()
        scope = f"(() => {{\n{inner}\nreturn {{ {exported} }};\n}})()"
        texts[name] = f"// {name}.js\nmodules.{name} = {scope};\n"

    add(MAIN)
    return "\n".join(["", "const modules = {};", *texts.values()])


def _contents(runs: Sequence[str], folder: Path) -> list[Content]:
    found: list[Content] = []
    for label in runs:
        with open_run(find_run(label, folder)) as run:
            taken = [content.name for content in found]
            same = sum(name.partition(" (")[0] == run.name for name in taken)
            name = f"{run.name} ({same + 1})" if same else run.name
            found.append(read_content(run, label, name))
    return found


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
