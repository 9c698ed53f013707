"""HTML and SVG as text: every word of a record is escaped here, and what it would turn is shown."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote

from nas.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VOID: Final = frozenset({"meta", "br", "input", "link"})


class Markup(str):
    """Text that is markup already; any other text is escaped when it becomes a part of one."""

    __slots__ = ()


Cell: TypeAlias = str | Markup


def element(name: str, /, *children: str | None, **attributes: str | float | None) -> Markup:
    """An element; ``class_`` is the attribute class, ``data_run`` data-run, None is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(_plain(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "" if name in VOID else f"{join(*children)}</{name}>"
    return Markup(f"<{name}{given}>{inner}")


def join(*parts: str | None) -> Markup:
    """Parts one after the other; what is no markup is escaped."""
    return Markup("".join(p if isinstance(p, Markup) else escape(printable(p)) for p in parts if p))


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Markup:
    """A table, a row a list of cells."""
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    lines = (element("tr", *(element("td", cell) for cell in row)) for row in rows)
    return element("table", element("thead", head), element("tbody", *lines))


def link(words: str, run: str, digest: str) -> Markup:
    """A link that chooses a mechanism of a run."""
    address = f"#run={quote(run)}&id={digest}"
    return element("a", words, href=address, data_run=run, data_id=digest)


def _plain(value: str | float) -> str:
    """Numbers are places in a drawing: a tenth of a pixel is enough."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
