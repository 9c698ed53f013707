"""One genome seen from all sides: formula, graph, costs, results, lineage and source."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from nas.common.errors import ViolationError
from nas.compiler import formula_of, make_plan, plain_source
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS, names_of
from nas.report.costs import Priced, Sizes, price, show_price
from nas.report.drawing import drawing, drawing_columns
from nas.report.history import History, history_of, lineage_columns, results
from nas.report.table import cut, line_width, say, say_table

if TYPE_CHECKING:
    from rich.console import Console

    from nas.compiler import Plan
    from nas.store.sources import Source


@dataclass(frozen=True)
class Shown:
    """A genome and what is known about it.

    Attributes:
        names: the named mechanisms that it equals.
        code: its plain source; None where it does not exist at the sizes.
        history: what a run knows of it, for RUN/ID.
    """

    source: Source
    sizes: Sizes
    plan: Plan
    digest: str
    names: tuple[str, ...]
    priced: Priced
    code: str | None
    history: History | None


def examine(
    source: Source, dim: int | None = None, heads: int | None = None, tokens: int | None = None
) -> Shown:
    """Find out everything about a genome, at these sizes, else at those of its run's task.

    Raises:
        ViolationError: it does not type-check.
        RunError: its run cannot be read.
    """
    try:
        plan = make_plan(source.genome)
    except ViolationError as error:
        raise ViolationError(
            f"{source.text}: {error} `nas validate {source.text}` says more.", error.violations
        ) from None
    sizes, task = Sizes(), source.task()
    if task is not None:
        found = task.main.sizes
        sizes = Sizes(found.dim, found.heads, found.tokens, task.main.qkv_bias)
    given: dict[str, Any] = {"dim": dim, "heads": heads, "tokens": tokens}
    sizes = replace(sizes, **{name: size for name, size in given.items() if size is not None})
    priced = price(plan.genome, sizes)
    code = None
    if priced.cost is not None:
        code = plain_source(plan.genome, sizes.dim, sizes.heads, qkv_bias=sizes.qkv_bias)
    return Shown(
        source=source,
        sizes=sizes,
        plan=plan,
        digest=digest(source.genome),
        names=names_of(source.genome),
        priced=priced,
        code=code,
        history=history_of(source.run, source.digest) if source.run and source.digest else None,
    )


def show_answer(shown: Shown) -> dict[str, Any]:
    """The JSON answer of ``nas show``: its stable keys, and what a run knows."""
    history = shown.history
    answer: dict[str, Any] = {
        "genome": shown.source.genome.to_dict(),
        "digest": shown.digest,
        "formula": formula_of(shown.plan),
        "source": shown.code,
        "costs": shown.priced.cost.to_dict() if shown.priced.cost else None,
        "parents": [],
        "sizes": asdict(shown.sizes),
        "mechanisms": list(shown.names),
        "canonical": shown.plan.genome.to_dict(),
        "graph": [asdict(line) for line in drawing(shown.plan.genome)],
    }
    return answer | (history.to_dict() if history else {})


def show(console: Console, shown: Shown) -> None:
    """Print all about a genome."""
    say(console, *_title(shown), "", formula_of(shown.plan))
    _section(console, "Graph")
    say_table(console, drawing_columns(drawing(shown.plan.genome)))
    say(console, *_notes(shown))
    _section(console, f"Costs of one block at {shown.sizes}")
    show_price(console, shown.priced, shown.sizes)
    if shown.history:
        _section(console, f"In run {shown.history.run}, all attention layers together")
        say_table(console, results(shown.history))
        _section(console, "Lineage, nearest first")
        say_table(console, lineage_columns(shown.history))
        say(console, *shown.history.more)
    if shown.code:
        _section(console, "Source")
        console.print(shown.code.rstrip(), soft_wrap=True, highlight=False, markup=False)
    text = shlex.quote(shown.source.text)
    say(console, "", f"next: nas export {text} -o attention.py · nas evaluate {text} mha")


def _title(shown: Shown) -> list[str]:
    lines = [f"{shown.source.text}   digest {shown.digest}"]
    if shown.source.text in MECHANISMS:
        found = MECHANISMS[shown.source.text]
        lines.append(f"{found.about} ({found.paper})")
    others = [name for name in shown.names if name != shown.source.text]
    if others:
        lines.append(f"the named mechanism {' = '.join(others)}")
    return lines


def _notes(shown: Shown) -> list[str]:
    """What the drawing does not say."""
    given, canonical = shown.source.genome, shown.plan.genome
    layers = {
        "all": "In every layer of a backbone.",
        "first": "In the first layer of a backbone; the others keep standard attention.",
        "alternate": "In every other layer of a backbone; the rest keep standard attention.",
    }
    lines = [layers[canonical.placement]]
    if len(canonical.nodes) < len(given.nodes):
        lines.append(f"The file has {len(given.nodes)} nodes; what has no effect is left out here.")
    lines += [f"{remark}." for remark in shown.plan.remarks(shown.sizes.heads)]
    if shown.plan.unsafe:
        lines.append(f"Not causal: {', '.join(shown.plan.unsafe)} sees later tokens.")
    return ["", *lines]


def _section(console: Console, title: str) -> None:
    from rich.text import Text

    say(console, "", Text(cut(title, line_width(console) or len(title)), "bold"))
