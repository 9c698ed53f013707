"""What a notebook shows of a genome, a front and a run: HTML without scripts, styles or colours.

Text has the colour of the notebook, so it is read on light and on dark. All words are escaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.common.errors import NasError
from nas.common.registry import NOTEBOOK
from nas.compiler import make_plan
from nas.report.facts import gather, headline
from nas.report.front import front_columns, legend
from nas.report.graph import graph_svg
from nas.report.page.content import read_content
from nas.report.page.markup import Markup, element, join
from nas.report.page.verdict import verdict_of
from nas.report.show import examine
from nas.report.units import human
from nas.store import open_run
from nas.store.sources import Source

if TYPE_CHECKING:
    from nas.genome import Genome
    from nas.report.facts import RunFacts
    from nas.report.front import Front
    from nas.report.show import ShowResult
    from nas.searching.listener import Ended


@NOTEBOOK.register("genome")
def genome_html(genome: Genome) -> str:
    """Formula, graph, and the costs of one block; of one that is not legal, why."""
    try:
        make_plan(genome)
    except NasError as error:
        return element("p", str(error))
    return show_html(examine(Source("", genome)))


def show_html(result: ShowResult) -> str:
    """Formula, graph, and the costs of one block."""
    costs, cost = result.priced.problem or "there are no costs", result.costs
    if cost is not None:
        costs = (
            f"{human(cost.macs)} MACs, {human(cost.params)} parameters, "
            f"{human(cost.kv_cache_bytes_per_token)} bytes of cache a token"
        )
    about = element("p", f"One block at {result.sizes}: {costs}.")
    formula = element("p", element("code", result.formula))
    return element("div", formula, graph_svg(result.plan.genome), about)


@NOTEBOOK.register("front")
def front_html(found: Front) -> str:
    """The table of ``nas front``."""
    return element("div", element("p", headline(found.facts)), _table(found.facts))


@NOTEBOOK.register("run")
def run_html(ended: Ended) -> str:
    """What holds, in a sentence, and the table of ``nas front``."""
    try:
        with open_run(ended.folder) as run, run.snapshot():
            facts, content = gather(run), read_content(run, ended.run, ended.run)
    except NasError as error:
        return element("p", f"{ended.message} {error}")
    said = element("p", element("b", verdict_of(content).headline))
    return element("div", element("p", headline(facts)), said, _table(facts))


def _table(facts: RunFacts) -> Markup:
    columns = [column for column in front_columns(facts) if any(column.cells)]
    looks = [
        f"text-align: {column.align}; padding: 0.2em 0.7em; white-space: nowrap"
        for column in columns
    ]
    heads = [
        element("th", column.header, scope="col", style=look)
        for column, look in zip(columns, looks, strict=True)
    ]
    rows = [
        element("tr", *(element("td", c, style=look) for c, look in zip(cells, looks, strict=True)))
        for cells in zip(*(column.cells for column in columns), strict=True)
    ]
    body = element("thead", element("tr", *heads)), element("tbody", *rows)
    grid = element("table", *body, style="color: inherit")  # some pages give tables another one
    notes = [element("p", element("small", line)) for line in legend(facts)]
    return join(element("div", grid, style="overflow-x: auto"), *notes)
