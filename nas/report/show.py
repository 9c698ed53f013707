"""One genome seen from all sides: formula, graph, costs, results, lineage and source."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from nas.canonical import digest
from nas.compiler import emit, formula_of, make_plan
from nas.config import parse_model, parse_yaml
from nas.costs import attention_cost
from nas.errors import GenomeError, ViolationError
from nas.mechanisms import MECHANISMS, mechanism
from nas.report.drawing import drawing, drawing_columns
from nas.report.history import History, history_of, lineage_columns, results
from nas.report.table import Column, cut, room, say, say_table
from nas.report.units import human
from nas.store import open_run
from nas.tasks import Task

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from nas.compiler import Plan
    from nas.costs import Cost
    from nas.sources import Source

COST_NAMES: Final = {
    "macs": "MACs",
    "attention_macs": "  of scores and aggregation",
    "elementwise": "elementwise operations",
    "params": "parameters",
    "kv_cache_bytes_per_token": "KV cache, bytes a token",
}


@dataclass(frozen=True)
class Sizes:
    """The sizes that costs and source are given at; by default those of vit-cifar10."""

    dim: int = 64
    heads: int = 4
    tokens: int = 65
    qkv_bias: bool = False


@dataclass(frozen=True)
class Shown:
    """A genome and what is known about it.

    Attributes:
        names: the named mechanisms that it equals.
        cost, standard: of it and of standard attention; None where it does not exist at the sizes,
            and ``problem`` says why.
        history: what a run knows of it, for RUN/ID.
    """

    source: Source
    sizes: Sizes
    plan: Plan
    digest: str
    names: tuple[str, ...]
    cost: Cost | None
    standard: Cost | None
    code: str | None
    problem: str
    history: History | None


def sizes_of_run(folder: Path) -> Sizes:
    """The sizes of the task that a run trains on, from its frozen copy."""
    with open_run(folder) as run:
        text, where = run.setup.task.text, f"the task of run {run.name}"
    task = parse_model(parse_yaml(text, where), Task, where)
    return Sizes(task.sizes.dim, task.sizes.heads, task.sizes.tokens, task.qkv_bias)


def examine(source: Source, sizes: Sizes) -> Shown:
    """Find out everything about a genome.

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
    name = digest(source.genome)
    costs, code, problem = _sized(plan, sizes)
    return Shown(
        source=source,
        sizes=sizes,
        plan=plan,
        digest=name,
        names=tuple(m.name for m in MECHANISMS.values() if digest(m.genome) == name),
        cost=costs[0],
        standard=costs[1],
        code=code,
        problem=problem,
        history=history_of(source.run, source.digest) if source.run and source.digest else None,
    )


def show_answer(shown: Shown) -> dict[str, Any]:
    """The JSON answer of ``nas show``: DESIGN's keys, and what a run knows."""
    history = shown.history
    answer: dict[str, Any] = {
        "genome": shown.source.genome.to_dict(),
        "digest": shown.digest,
        "formula": formula_of(shown.plan),
        "source": shown.code,
        "costs": shown.cost.to_dict() if shown.cost else None,
        "parents": list(history.proposal.parents) if history else [],
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
    say(console, *_remarks(shown))
    _section(console, _cost_title(shown.sizes))
    if shown.cost and shown.standard:
        say_table(console, _cost_columns(shown.cost, shown.standard))
    else:
        say(console, shown.problem)
    if shown.history:
        _section(console, f"In run {shown.history.run}, all attention layers together")
        say_table(console, results(shown.history))
        _section(console, "Lineage, nearest first")
        say_table(console, lineage_columns(shown.history))
        say(console, *shown.history.more)
    if shown.code:
        _section(console, "Source")
        console.print(shown.code.rstrip(), soft_wrap=True, highlight=False, markup=False)
    say(console, "", _next(shown))


def _sized(plan: Plan, sizes: Sizes) -> tuple[tuple[Cost | None, Cost | None], str | None, str]:
    """Costs of the mechanism and of standard attention, and source; or why there are none."""
    try:
        costs = tuple(
            attention_cost(genome, **asdict(sizes))
            for genome in (plan.genome, mechanism("mha").genome)
        )
        code = emit(plan.genome, sizes.dim, sizes.heads, qkv_bias=sizes.qkv_bias)
    except GenomeError as error:
        return (None, None), None, f"It does not exist at these sizes: {error}"
    return (costs[0], costs[1]), code, ""


def _title(shown: Shown) -> list[str]:
    lines = [f"{shown.source.text}   digest {shown.digest}"]
    if shown.source.text in MECHANISMS:
        found = MECHANISMS[shown.source.text]
        lines.append(f"{found.about} ({found.paper})")
    others = [name for name in shown.names if name != shown.source.text]
    if others:
        lines.append(f"the named mechanism {' = '.join(others)}")
    return lines


def _remarks(shown: Shown) -> list[str]:
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
    if shown.plan.unsafe:
        lines.append(f"Not causal: {', '.join(shown.plan.unsafe)} sees later tokens.")
    return ["", *lines]


def _cost_title(sizes: Sizes) -> str:
    bias = ", q/k/v biases" if sizes.qkv_bias else ""
    return (
        f"Costs of one block at dim {sizes.dim}, {sizes.heads} heads, {sizes.tokens} tokens{bias}"
    )


def _cost_columns(cost: Cost, standard: Cost) -> list[Column]:
    own, whole = cost.to_dict(), standard.to_dict()
    return [
        Column("", tuple(COST_NAMES.values())),
        Column("", tuple(human(own[name]) for name in COST_NAMES), "right"),
        Column("", tuple(_relative(own[n], whole[n]) for n in COST_NAMES), style="dim", rank=1),
    ]


def _relative(value: int, whole: int) -> str:
    return f"{value / whole:.2f} × mha" if whole else ""


def _section(console: Console, title: str) -> None:
    from rich.text import Text

    say(console, "", Text(cut(title, room(console) or len(title)), "bold"))


def _next(shown: Shown) -> str:
    text = shown.source.text
    return f"next: nas export {text} -o attention.py · nas evaluate {text} mha"
