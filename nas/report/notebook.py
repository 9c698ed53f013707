"""What a notebook shows of a run: HTML without scripts, styles or colours.

Text has the colour of the notebook, so it is read on light and on dark. All words are escaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from nas.common.errors import NasError
from nas.report.front import Front
from nas.report.page.rendering import render
from nas.report.run_view import RunView
from nas.report.verdict import verdict_of
from nas.store import open_run

if TYPE_CHECKING:
    from nas.searching.listener import SearchResult


def run_html(ended: SearchResult) -> str:
    """The verdict, and the table of ``nas front``."""
    try:
        with open_run(ended.folder) as run:
            view = RunView.read(run)
    except NasError as error:
        return render("notebook.html", content="", about=f"{ended.message} {error}")
    table = Markup(Front(view)._repr_html_())  # noqa: S704 - escaped
    return render("notebook.html", headline=verdict_of(view).headline, content=table)
