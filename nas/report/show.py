"""The result of ``nas.show``: formula, graph, costs, results, lineage and source of a genome."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console
from rich.text import Text

from nas.common.errors import ViolationError
from nas.compiler import Plan, formula_of, make_plan, plain_source
from nas.genome import ALL, Genome, Rest
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS, names_of
from nas.report.costs import Priced, Sizes, price, show_price
from nas.report.drawing import drawing, drawing_columns
from nas.report.history import History, history_of, lineage_columns, results
from nas.report.result import Result
from nas.report.table import cut, line_width, say, say_table
from nas.report.units import human
from nas.store.sources import Source


@dataclass(frozen=True)
class ShowResult(Result):
    """Everything known about one genome; a notebook shows formula, graph and costs.

    ``origin`` is the genome as written, ``plan`` its normal form (simplified, canonical order) and
    ``digest`` the digest of that. ``mechanisms`` are the named mechanisms equal to it. ``priced``
    and ``source`` (readable Python; None if the block cannot be built) are those of one attention
    block at ``sizes``. ``history`` is None unless the genome is a run's.
    """

    origin: Source
    sizes: Sizes
    plan: Plan
    digest: str
    mechanisms: tuple[str, ...]
    priced: Priced
    source: str | None
    history: History | None

    @property
    def genome(self) -> Genome:
        """The genome as written, that is, not simplified."""
        return self.origin.genome

    @property
    def formula(self) -> str:
        """The genome's mechanism in a line of mathematics."""
        return formula_of(self.plan)

    @property
    def costs(self) -> dict[str, int] | None:
        """The costs of one attention block at batch size 1; None if the block cannot be built."""
        return self.priced.cost

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``nas show --json`` prints."""
        answer: dict[str, Any] = {
            "genome": self.genome.to_dict(),
            "digest": self.digest,
            "formula": self.formula,
            "source": self.source,
            "costs": self.costs,
            "parents": [],
            "sizes": asdict(self.sizes),
            "mechanisms": list(self.mechanisms),
            "canonical": self.plan.genome.to_dict(),
            "graph": [asdict(line) for line in drawing(self.plan.genome)],
        }
        return answer | (self.history.to_dict() if self.history else {})

    def _repr_html_(self) -> str:
        from nas.report.graph import graph_svg
        from nas.report.page.rendering import render

        costs, cost = self.priced.problem or "there are no costs", self.costs
        if cost is not None:
            costs = (
                f"{human(cost['macs'])} MACs, {human(cost['params'])} parameters, "
                f"{human(cost['kv_cache_bytes_per_token'])} bytes of cache a token"
            )
        about, graph = f"One block at {self.sizes}: {costs}.", graph_svg(self.plan.genome)
        return render("notebook.html", formula=self.formula, content=graph, about=about)


def examine(
    source: Source, dim: int | None = None, heads: int | None = None, tokens: int | None = None
) -> ShowResult:
    """Return everything known about a genome.

    By default the sizes of the attention block are those of the task of the genome's run, or of
    ``Sizes`` for a genome without a run.

    Raises:
        ViolationError: the genome does not type-check.
        RunError: the genome's run cannot be read.
    """
    try:
        plan = make_plan(source.genome)
    except ViolationError as error:
        raise ViolationError(
            f"{source.text}: {error} `nas validate {source.text}` says more.", error.violations
        ) from None
    sizes, task = Sizes(), source.task()
    if task is not None:
        model = task.main.sizes
        sizes = Sizes(model.dim, model.heads, model.tokens, task.main.qkv_bias)
    arguments: dict[str, Any] = {"dim": dim, "heads": heads, "tokens": tokens}
    sizes = replace(sizes, **{name: size for name, size in arguments.items() if size is not None})
    priced = price(plan.genome, sizes)
    code = None
    if priced.cost is not None:
        code = plain_source(plan.genome, sizes.dim, sizes.heads, qkv_bias=sizes.qkv_bias)
    return ShowResult(
        origin=source,
        sizes=sizes,
        plan=plan,
        digest=digest(source.genome),
        mechanisms=names_of(source.genome),
        priced=priced,
        source=code,
        history=history_of(source.run, source.digest) if source.run and source.digest else None,
    )


def show(console: Console, result: ShowResult) -> None:
    """Print everything known about a genome."""

    def section(title: str) -> None:
        say(console, "", Text(cut(title, line_width(console) or len(title)), "bold"))

    text, history = result.origin.text, result.history
    say(console, f"{text}   digest {result.digest}")
    if text in MECHANISMS:
        say(console, f"{MECHANISMS[text].about} ({MECHANISMS[text].paper})")
    if others := [name for name in result.mechanisms if name != text]:
        say(console, f"the named mechanism {' = '.join(others)}")
    say(console, "", result.formula)
    section("Graph")
    say_table(console, drawing_columns(drawing(result.plan.genome)))
    say(console, "", *_notes(result))
    section(f"Costs of one block at {result.sizes}")
    show_price(console, result.priced, result.sizes)
    if history:
        section(f"In run {history.view.name}, all attention layers together")
        say_table(console, results(history))
        section("Lineage, nearest first")
        say_table(console, lineage_columns(history))
        say(console, *history.more)
    if result.source:
        section("Source")
        console.print(result.source.rstrip(), soft_wrap=True, highlight=False, markup=False)
    typed = shlex.quote(text)
    say(console, "", f"next: nas export {typed} -o attention.py · nas evaluate {typed} mha")


def _notes(result: ShowResult) -> list[str]:
    """Return remarks on the genome: layers of the model, nodes without effect, heads, causality."""
    genome, canonical = result.origin.genome, result.plan.genome
    words = {"all": "every layer", "first": "the first layer", "alternate": "every other layer"}
    placement = canonical.placement
    pattern = str(replace(placement, rest=Rest()))
    others = "" if placement == ALL else f"; the others have {placement.rest}"
    lines = [f"In {words.get(pattern, pattern)} of a backbone{others}."]
    if len(canonical.nodes) < len(genome.nodes):
        lines.append(
            f"The file has {len(genome.nodes)} nodes; what has no effect is left out here."
        )
    lines += [f"{remark}." for remark in result.plan.remarks(result.sizes.heads)]
    if result.plan.unsafe:
        lines.append(f"Not causal: {', '.join(result.plan.unsafe)} sees later tokens.")
    return lines
