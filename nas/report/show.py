"""The result of ``nas.show``: formula, graph, costs, results and source of a genome."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.text import Text

from nas.common.errors import GenomeError, ViolationError
from nas.compiler import Plan, formula_of, make_plan, plain_source
from nas.costs import attention_cost
from nas.genome import ALL, STANDARD, Genome, Rest
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS, mechanism, names_of
from nas.report.costs import Sizes, sizes_of
from nas.report.graph import drawing, graph_svg
from nas.report.recorded import costs, facts, recorded_answer, trainings_of, trainings_table
from nas.report.result import Result
from nas.report.run_view import RunView
from nas.report.table import Table, cut, line_width, named_values, say, say_table, words
from nas.report.units import header, human, multiple
from nas.store import Candidate, open_run
from nas.store.sources import Source


@dataclass(frozen=True)
class ShowResult(Result):
    """Everything known about one genome; a notebook shows formula, graph and costs.

    ``origin`` is the genome as written, ``plan`` its normal form and ``digest`` the digest of that.
    ``mechanisms`` are the named mechanisms equal to it. ``costs`` and ``source`` (readable Python)
    are those of one attention block at ``sizes`` and batch 1; if the block cannot be built, they
    are None and ``problem`` is the reason. ``recorded`` is the genome's run and mechanism.
    """

    origin: Source
    sizes: Sizes
    plan: Plan
    digest: str
    mechanisms: tuple[str, ...]
    costs: dict[str, int] | None
    source: str | None
    problem: str
    recorded: tuple[RunView, Candidate] | None

    @property
    def genome(self) -> Genome:
        """The genome as written, that is, not simplified."""
        return self.origin.genome

    @property
    def formula(self) -> str:
        """The genome's mechanism in a line of mathematics."""
        return formula_of(self.plan)

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
        }
        return answer | (recorded_answer(*self.recorded) if self.recorded else {})

    def _repr_html_(self) -> str:
        costs, cost = self.problem, self.costs
        if cost is not None:
            costs = (
                f"{human(cost['macs'])} MACs, {human(cost['params'])} parameters, "
                f"{human(cost['kv_cache_bytes_per_token'])} bytes of cache a token"
            )
        return Markup("<div><p><code>{}</code></p>{}<p>One block at {}: {}.</p></div>").format(
            self.formula, graph_svg(self.plan.genome), self.sizes, costs
        )


def examine(
    source: Source, dim: int | None = None, heads: int | None = None, tokens: int | None = None
) -> ShowResult:
    """Return everything known about a genome; raise ViolationError if it does not type-check.

    By default the sizes of the attention block are those of the task of the genome's run, or of
    ``Sizes`` for a genome without a run.
    """
    try:
        plan = make_plan(source.genome)
    except ViolationError as error:
        raise ViolationError(
            f"{source.text}: {error} `nas validate {source.text}` says more.", error.violations
        ) from None
    sizes = sizes_of([source], dim=dim, heads=heads, tokens=tokens)
    cost, code, problem = None, None, ""
    try:
        cost = attention_cost(plan.genome, **asdict(sizes))
        code = plain_source(plan.genome, sizes.dim, sizes.heads, qkv_bias=sizes.qkv_bias)
    except GenomeError as error:
        problem = f"It does not exist at these sizes: {error}"
    recorded = None
    if source.run is not None and source.digest is not None:
        with open_run(source.run) as run:
            view = RunView.read(run)
        recorded = view, view.by_digest[source.digest]
    return ShowResult(
        origin=source,
        sizes=sizes,
        plan=plan,
        digest=digest(source.genome),
        mechanisms=names_of(source.genome),
        costs=cost,
        source=code,
        problem=problem,
        recorded=recorded,
    )


def show(console: Console, result: ShowResult) -> None:
    """Print everything known about a genome."""

    def section(title: str) -> None:
        say(console, "", Text(cut(title, line_width(console) or len(title)), "bold"))

    text = result.origin.text
    reference = result.recorded[0].reference if result.recorded else STANDARD
    say(console, f"{text}   digest {result.digest}")
    if others := [name for name in result.mechanisms if name != text]:
        say(console, f"the named mechanism {' = '.join(others)}")
    if text in MECHANISMS:
        say(console, MECHANISMS[text].paper, "", MECHANISMS[text].reading)
    say(console, "", result.formula)
    section("Graph")
    say_table(console, drawing(result.plan.genome))
    say(console, "", *_notes(result))
    section(f"Costs of one block at {result.sizes}")
    if result.costs is None:
        say(console, result.problem)
    else:
        say_table(console, _costs(result.costs, result.sizes, reference))
    if result.recorded:
        view, recorded = result.recorded
        trained = view.trained_as(recorded)
        section(f"In run {view.name}, all attention layers together")
        known = [(name, text) for name, text, _ in (*costs(view, trained), *facts(view, trained))]
        say_table(console, named_values(known))
        say(console, *filter(None, [recorded.proposal.note]))
        section("Trainings")
        say_table(console, trainings_table(view, trainings_of(view, trained)))
    if result.source:
        section("Source")
        console.print(result.source.rstrip(), soft_wrap=True, highlight=False, markup=False)
    typed = shlex.quote(text)
    further = f" · nas evaluate {reference} {typed} --seeds 5" * (typed != reference)
    say(console, "", f"next: nas export {typed} -o attention.py{further}")


def _costs(costs: dict[str, int], sizes: Sizes, reference: str) -> Table[tuple[str, str, str]]:
    """Return a table of the costs of a block, with their ratios to those of the reference."""
    base = attention_cost(mechanism(reference).genome, **asdict(sizes))
    rows = [
        (
            header(name),
            human(value),
            f"{multiple(value / base[name])} × {reference}" if base[name] else "",
        )
        for name, value in costs.items()
    ]
    columns = [words(0), words(1, is_number=True), words(2, style="dim", rank=1)]
    return Table(columns, rows)


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
