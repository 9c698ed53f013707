"""Costs of mechanisms at one or several lengths: a table, and the answer of ``nas cost``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from nas.common.errors import GenomeError
from nas.compiler import make_plan
from nas.costs import attention_cost
from nas.genome.mechanisms import mechanism
from nas.report.facts import STANDARD
from nas.report.table import Column, say, say_table
from nas.report.units import header, human

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from nas.costs import Cost
    from nas.genome import Genome
    from nas.store.sources import Source


@dataclass(frozen=True)
class Sizes:
    """The sizes of one block that costs and source are given at."""

    dim: int = 64
    heads: int = 4
    tokens: int = 65
    qkv_bias: bool = False

    def __str__(self) -> str:
        bias = ", q/k/v biases" if self.qkv_bias else ""
        return f"dim {self.dim}, {self.heads} heads, {self.tokens:,} tokens{bias}"


@dataclass(frozen=True)
class Priced:
    """What a block costs; None where the mechanism does not exist, and ``problem`` says why."""

    cost: Cost | None
    problem: str = ""


@dataclass(frozen=True)
class Counted:
    """What blocks of one size cost.

    Attributes:
        lengths: in tokens, from short to long.
        rows: mechanisms, each with its costs by length.
    """

    dim: int
    heads: int
    lengths: tuple[int, ...]
    rows: tuple[tuple[Source, dict[int, Cost]], ...]


def count_costs(sources: Iterable[Source], dim: int, heads: int, lengths: Iterable[int]) -> Counted:
    """Count each mechanism at each length.

    Raises:
        GenomeError, ViolationError: a mechanism does not exist at this size.
    """
    count = partial(attention_cost, dim=dim, heads=heads)
    ordered = tuple(sorted({*lengths}))
    rows = ((s, {tokens: count(s.genome, tokens=tokens) for tokens in ordered}) for s in sources)
    return Counted(dim, heads, ordered, tuple(rows))


def price(genome: Genome, sizes: Sizes) -> Priced:
    """The cost of one block, if it exists at these sizes."""
    try:
        return Priced(attention_cost(genome, **asdict(sizes)))
    except GenomeError as error:
        return Priced(None, f"It does not exist at these sizes: {error}")


def show_price(console: Console, priced: Priced, sizes: Sizes, title: str = "") -> None:
    """Print a row a cost, and how many times standard attention's it is; or the problem."""
    if priced.cost is None:
        say(console, priced.problem)
        return
    own = priced.cost.to_dict()
    standard = attention_cost(mechanism(STANDARD).genome, **asdict(sizes)).to_dict()
    ratios = [f"{own[n] / standard[n]:.2f} × {STANDARD}" if standard[n] else "" for n in own]
    columns = [
        Column("", [header(name) for name in own]),
        Column(title, [human(value) for value in own.values()], "right"),
        Column("", ratios, style="dim", rank=1),
    ]
    say_table(console, columns)


def cost_answer(counted: Counted) -> Any:
    """The JSON answer of ``nas cost``: one object for one source at one length, else a list.

    With several lengths each object says which source and length it is of.
    """
    answers = [
        ({"source": source.text, "tokens": n} if len(costs) > 1 else {}) | cost.to_dict()
        for source, costs in counted.rows
        for n, cost in costs.items()
    ]
    return answers[0] if len(answers) == 1 else answers


def show_costs(console: Console, counted: Counted) -> None:
    """Print what was counted."""
    sizes, lengths = f"dim {counted.dim}, heads {counted.heads}", counted.lengths
    names = Column("mechanism", [source.name for source, _ in counted.rows])
    every = [costs for _, costs in counted.rows]
    if len(lengths) == 1:
        say(console, f"{sizes}, {lengths[0]:,} tokens, batch 1:", "")
        numbers = [costs[lengths[0]].to_dict() for costs in every]
        columns = [
            Column(name.replace("_", " "), [f"{n[name]:,}" for n in numbers], "right")
            for name in numbers[0]
        ]
        say_table(console, [names, *columns])
    else:
        say(console, f"Multiply-adds by sequence length ({sizes}, batch 1):", "")
        macs = [Column(f"{n:,}", [human(c[n].macs) for c in every], "right") for n in lengths]
        say_table(console, [names, *macs])
        say(console, "", "At every length:", "")
        # A mechanism with weights for each position has other parameters at another length.
        kept = [
            Column(header(name), [_range(costs, name) for costs in every], "right")
            for name in ("params", "kv_cache_bytes_per_token")
        ]
        say_table(console, [names, *kept])
    for source, _ in counted.rows:
        remarks = make_plan(source.genome).remarks(counted.heads)
        say(console, *(f"{source.name}: {remark}." for remark in remarks))


def _range(costs: dict[int, Cost], name: str) -> str:
    values = [getattr(cost, name) for cost in costs.values()]
    least, most = min(values), max(values)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
