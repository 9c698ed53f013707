"""Costs of mechanisms at one or several sequence lengths: the result of ``nas.cost``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from nas.common.errors import GenomeError
from nas.compiler import make_plan
from nas.costs import Cost, attention_cost, default_costs
from nas.genome import Genome
from nas.genome.mechanisms import mechanism
from nas.report.result import TableResult
from nas.report.run_view import STANDARD
from nas.report.table import TextColumn, say, say_table
from nas.report.units import header, human
from nas.store.sources import Source


@dataclass(frozen=True)
class Sizes:
    """The sizes of the block for which costs and source are computed."""

    dim: int = 64
    heads: int = 4
    tokens: int = 65
    qkv_bias: bool = False

    def __str__(self) -> str:
        bias = ", q/k/v biases" if self.qkv_bias else ""
        return f"dim {self.dim}, {self.heads} heads, {self.tokens:,} tokens{bias}"


@dataclass(frozen=True)
class Priced:
    """The cost of a block; or None, and ``problem`` states why it cannot be built."""

    cost: Cost | None
    problem: str = ""


@dataclass(frozen=True)
class CostRow:
    """Costs of one block of a mechanism.

    Attributes:
        source: the SOURCE string.
        name: a short name of the mechanism.
        tokens: sequence length.
        remarks: sentences on the effects of the head count on the mechanism.
    """

    source: str
    name: str
    tokens: int
    cost: Cost
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class CostTable(TableResult):
    """Costs of mechanisms at one or several sequence lengths, batch 1.

    Attributes:
        dim: model width.
        heads: heads of the backbone.
        rows: a row for each source and length, in order of sources, then of lengths.
    """

    dim: int
    heads: int
    rows: tuple[CostRow, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Sequence lengths in tokens, from short to long."""
        return tuple(sorted({row.tokens for row in self.rows}))

    @property
    def by_source(self) -> tuple[tuple[CostRow, ...], ...]:
        """The rows of each source."""
        size = len(self.lengths)
        return tuple(self.rows[i : i + size] for i in range(0, len(self.rows), size))

    def to_dict(self) -> Any:
        """The JSON of ``nas cost``: an object for one row, else a list of them.

        With several lengths each object names its source and length.
        """
        is_named = len(self.lengths) > 1
        objects = [
            ({"source": row.source, "tokens": row.tokens} if is_named else {}) | row.cost.to_dict()
            for row in self.rows
        ]
        return objects[0] if len(objects) == 1 else objects

    def records(self) -> list[dict[str, Any]]:
        """A row for each source and length."""
        return [{"source": r.source, "tokens": r.tokens, **r.cost.to_dict()} for r in self.rows]


def count_costs(
    sources: Iterable[Source], dim: int, heads: int, lengths: Iterable[int]
) -> CostTable:
    """Count each mechanism at each length.

    Raises:
        GenomeError, ViolationError: a mechanism does not exist at this size.
    """
    rows = []
    for source in sources:
        remarks = tuple(f"{remark}." for remark in make_plan(source.genome).remarks(heads))
        for tokens in sorted({*lengths}):
            cost = attention_cost(source.genome, dim=dim, heads=heads, tokens=tokens)
            rows.append(CostRow(source.text, source.name, tokens, cost, remarks))
    return CostTable(dim, heads, tuple(rows))


def price(genome: Genome, sizes: Sizes) -> Priced:
    """The cost of one block, or the reason why it cannot be built at these sizes."""
    try:
        return Priced(attention_cost(genome, **asdict(sizes)))
    except GenomeError as error:
        return Priced(None, f"It does not exist at these sizes: {error}")


def show_price(console: Console, priced: Priced, sizes: Sizes, title: str = "") -> None:
    """Print each cost and its ratio to standard attention's; or the problem."""
    if priced.cost is None:
        say(console, priced.problem)
        return
    costs = priced.cost.to_dict()
    standard = attention_cost(mechanism(STANDARD).genome, **asdict(sizes)).to_dict()
    ratios = [f"{costs[n] / standard[n]:.2f} × {STANDARD}" if standard[n] else "" for n in costs]
    columns = [
        TextColumn("", [header(name) for name in costs]),
        TextColumn(title, [human(value) for value in costs.values()], "right"),
        TextColumn("", ratios, style="dim", rank=1),
    ]
    say_table(console, columns)


def show_costs(console: Console, table: CostTable) -> None:
    """Print a table of costs."""
    sizes, lengths = f"dim {table.dim}, heads {table.heads}", table.lengths
    names = TextColumn("mechanism", [first.name for first, *_ in table.by_source])
    if len(lengths) == 1:
        say(console, f"{sizes}, {lengths[0]:,} tokens, batch 1:", "")
        numbers = [row.cost.to_dict() for row in table.rows]
        columns = [
            TextColumn(name.replace("_", " "), [f"{n[name]:,}" for n in numbers], "right")
            for name in numbers[0]
        ]
        say_table(console, [names, *columns])
    else:
        say(console, f"Multiply-adds by sequence length ({sizes}, batch 1):", "")
        by_length = zip(*table.by_source, strict=True)
        macs = [
            TextColumn(f"{rows[0].tokens:,}", [human(row.cost.macs) for row in rows], "right")
            for rows in by_length
        ]
        say_table(console, [names, *macs])
        say(console, "", "At every length:", "")
        # A mechanism with weights for each position has other parameters at another length.
        constant = [
            TextColumn(header(name), [_range(rows, name) for rows in table.by_source], "right")
            for name in default_costs()
            if name != "macs"
        ]
        say_table(console, [names, *constant])
    for first, *_ in table.by_source:
        say(console, *(f"{first.name}: {remark}" for remark in first.remarks))


def _range(rows: Sequence[CostRow], name: str) -> str:
    values = [getattr(row.cost, name) for row in rows]
    least, most = min(values), max(values)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
