"""What a notebook shows of a genome, a front and a run: HTML without scripts, styles or colours.

Text has the colour of the notebook, so it is read on light and on dark. All words are escaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from nas.common.errors import NasError
from nas.report.front import Front
from nas.report.graph import graph_svg
from nas.report.page.rendering import render
from nas.report.run_view import RunView
from nas.report.units import human
from nas.report.verdict import verdict_of
from nas.store import open_run

if TYPE_CHECKING:
    from nas.report.show import ShowResult
    from nas.searching.listener import SearchResult


def show_html(result: ShowResult) -> str:
    """Formula, graph, and the costs of one block."""
    costs, cost = result.priced.problem or "there are no costs", result.costs
    if cost is not None:
        costs = (
            f"{human(cost.macs)} MACs, {human(cost.params)} parameters, "
            f"{human(cost.kv_cache_bytes_per_token)} bytes of cache a token"
        )
    graph = graph_svg(result.plan.genome)
    about = f"One block at {result.sizes}: {costs}."
    return render("notebook.html", formula=result.formula, content=graph, about=about)


def run_html(ended: SearchResult) -> str:
    """The verdict, and the table of ``nas front``."""
    try:
        with open_run(ended.folder) as run:
            view = RunView.read(run)
    except NasError as error:
        return render("notebook.html", content="", about=f"{ended.message} {error}")
    table = Markup(Front(view)._repr_html_())  # noqa: S704 - escaped
    return render("notebook.html", headline=verdict_of(view).headline, content=table)
