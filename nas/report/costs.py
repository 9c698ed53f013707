"""Costs of mechanisms: the results of ``nas.cost`` and ``nas mechanisms``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.text import Text

from nas.common.errors import GenomeError
from nas.compiler import build_attention, formula, make_plan, resolve
from nas.costs import Cost, attention_cost, default_costs
from nas.genome import Genome, ModelSizes
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS, NamedMechanism, mechanism
from nas.report.comparison import MARK, MEASURED
from nas.report.result import TableResult
from nas.report.run_view import STANDARD
from nas.report.table import (
    GAP,
    TextColumn,
    line_width,
    say,
    say_lines,
    say_table,
    table_lines,
)
from nas.report.units import digits, header, human
from nas.store.sources import AnyTrainable, ModuleSource


@dataclass(frozen=True)
class Sizes:
    """The sizes of the attention block for which costs and source code are computed.

    Attributes:
        dim: width of the block.
        heads: number of heads.
        tokens: sequence length in tokens.
        qkv_bias: whether the projections to queries, keys and values have biases.
    """

    dim: int = 64
    heads: int = 4
    tokens: int = 65
    qkv_bias: bool = False

    def __str__(self) -> str:
        bias = ", q/k/v biases" if self.qkv_bias else ""
        return f"dim {self.dim}, {self.heads} heads, {self.tokens:,} tokens{bias}"


@dataclass(frozen=True)
class Priced:
    """The cost of an attention block, or the reason why the block cannot be built.

    Attributes:
        cost: cost of the block; None if the block cannot be built.
        problem: reason why the block cannot be built; empty if it can be built.
    """

    cost: Cost | None
    problem: str = ""


@dataclass(frozen=True)
class CostRow:
    """The cost of one attention block of a mechanism at one sequence length.

    Attributes:
        source: argument SOURCE of the command, which names the mechanism.
        name: short name of the mechanism.
        tokens: sequence length in tokens.
        remarks: sentences on the effects of the head count on the mechanism.
        is_measured: whether the cost was measured, because the mechanism is a user's own torch
            module. Costs that cannot be measured are missing.
        time_ms: milliseconds of a forward and backward pass on one thread of this machine's CPU;
            None if the table has no module whose time is to be compared.
    """

    source: str
    name: str
    tokens: int
    cost: Cost
    remarks: tuple[str, ...] = ()
    is_measured: bool = False
    time_ms: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the costs, and for a table with a user's own module also what was measured."""
        if self.time_ms is None:
            return dict(self.cost.to_dict())
        return {**self.cost.to_dict(), "time_ms": self.time_ms, "measured": self.is_measured}

    def cell(self, name: str, form: Callable[[int], str]) -> str:
        """Return a cost as text: with a mark if it was measured, "-" if it is not known."""
        value = self.cost.values.get(name)
        return "-" if value is None else form(value) + MARK * self.is_measured


@dataclass(frozen=True)
class CostTable(TableResult):
    """Costs of mechanisms at one or several sequence lengths and batch size 1.

    Attributes:
        dim: width of the model.
        heads: number of heads of the model.
        rows: costs of each mechanism at each length, grouped by mechanism, then sorted by length.
    """

    dim: int
    heads: int
    rows: tuple[CostRow, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The sequence lengths in tokens, from short to long."""
        return tuple(sorted({row.tokens for row in self.rows}))

    @property
    def by_source(self) -> tuple[tuple[CostRow, ...], ...]:
        """The rows in groups, one group for each mechanism."""
        size = len(self.lengths)
        return tuple(self.rows[i : i + size] for i in range(0, len(self.rows), size))

    def to_dict(self) -> Any:
        """Return the JSON of ``nas cost``: an object for one row, a list of objects for several.

        For several lengths, each object also contains ``source``, which names the mechanism, and
        the sequence length in ``tokens``.
        """
        is_named = len(self.lengths) > 1
        objects = [
            ({"source": row.source, "tokens": row.tokens} if is_named else {}) | row.to_dict()
            for row in self.rows
        ]
        return objects[0] if len(objects) == 1 else objects

    def records(self) -> list[dict[str, Any]]:
        """Return a dict for each mechanism and length, with the names of table columns as keys."""
        return [{"source": r.source, "tokens": r.tokens, **r.to_dict()} for r in self.rows]


def count_costs(
    sources: Sequence[AnyTrainable], dim: int, heads: int, lengths: Iterable[int]
) -> CostTable:
    """Return the costs of one attention block of each mechanism at each sequence length.

    If a mechanism is a user's own torch module, its costs and the times of all are measured.

    Args:
        sources: the mechanisms.
        dim: width of the model.
        heads: number of heads of the model.
        lengths: sequence lengths in tokens; duplicates are ignored.

    Raises:
        GenomeError, ViolationError: a mechanism cannot be built at these sizes.
        ConfigError: a user's own module cannot be built at these sizes.
    """
    rows, lengths = [], sorted({*lengths})
    for source in sources:
        if isinstance(source, ModuleSource):
            rows += [_measured_row(source, ModelSizes(dim, heads, 1, n)) for n in lengths]
            continue
        remarks = tuple(f"{remark}." for remark in make_plan(source.genome).remarks(heads))
        for tokens in lengths:
            cost = attention_cost(source.genome, dim=dim, heads=heads, tokens=tokens)
            rows.append(CostRow(source.text, source.name, tokens, cost, remarks))
    if any(row.is_measured for row in rows):
        rows = _timed(rows, sources, [ModelSizes(dim, heads, 1, n) for n in lengths])
    return CostTable(dim, heads, tuple(rows))


def _measured_row(source: ModuleSource, sizes: ModelSizes) -> CostRow:
    from nas.training.user_check import check_user_module, module_costs

    check_user_module(source.mechanism, sizes, is_causal=False)
    costs = module_costs(source.mechanism, sizes, is_causal=False)
    cost = Cost({name: math.ceil(value) for name, value in costs.items()})
    return CostRow(source.text, source.name, sizes.tokens, cost, is_measured=True)


def _timed(
    rows: Sequence[CostRow], sources: Sequence[AnyTrainable], lengths: Sequence[ModelSizes]
) -> list[CostRow]:
    """Return rows, grouped by source and sorted by length, with measured times.

    A time is the lesser of two measurements, between which all others take their turn.
    """
    from nas.costs.measured import measured_ms
    from nas.training.user_check import module_ms

    def milliseconds(source: AnyTrainable, sizes: ModelSizes) -> float:
        if isinstance(source, ModuleSource):
            return module_ms(source.mechanism, sizes)
        plan = resolve(source.genome, sizes, is_causal=False).plan
        return measured_ms(build_attention(plan, sizes.dim, sizes.heads), sizes)

    rounds = [[milliseconds(s, sizes) for s in sources for sizes in lengths] for _ in range(2)]
    times = map(min, *rounds)
    return [replace(row, time_ms=time) for row, time in zip(rows, times, strict=True)]


def price(genome: Genome, sizes: Sizes, names: Iterable[str] | None = None) -> Priced:
    """Return the cost of an attention block of these sizes, or why the block cannot be built.

    Args:
        names: names of costs; by default all costs that can be counted for one block.
    """
    try:
        return Priced(attention_cost(genome, **asdict(sizes), names=names))
    except GenomeError as error:
        return Priced(None, f"It does not exist at these sizes: {error}")


def show_price(console: Console, priced: Priced, sizes: Sizes, title: str = "") -> None:
    """Print a block's costs and ratios to standard attention, or why it cannot be built."""
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
    """Print the costs of each mechanism as a table.

    For several lengths two tables are printed: multiply-adds at each length, then the other costs.
    """
    sizes, lengths = f"dim {table.dim}, heads {table.heads}", table.lengths
    names = TextColumn("mechanism", [first.name for first, *_ in table.by_source])
    if len(lengths) == 1:
        say(console, f"{sizes}, {lengths[0]:,} tokens, batch 1:", "")
        counted = dict.fromkeys(name for row in table.rows for name in row.cost.values)
        columns = [
            TextColumn(
                name.replace("_", " "),
                [row.cell(name, "{:,}".format) for row in table.rows],
                "right",
            )
            for name in counted
        ]
        say_table(console, [names, *columns, *_times(table)])
    else:
        say(console, f"Multiply-adds by sequence length ({sizes}, batch 1):", "")
        by_length = zip(*table.by_source, strict=True)
        macs = [
            TextColumn(f"{rows[0].tokens:,}", [row.cell("macs", human) for row in rows], "right")
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
        if times := _times(table):
            say(console, "", "Milliseconds by sequence length:", "")
            say_table(console, [names, *times])
    if any(row.is_measured for row in table.rows):
        say(
            console,
            "",
            MEASURED,
            "time ms: a forward and backward pass of each mechanism, timed on one thread of this "
            "machine's CPU.",
        )
    for first, *_ in table.by_source:
        say(console, *(f"{first.name}: {remark}" for remark in first.remarks))


def mechanisms_answer(sizes: Sizes, mechanism: NamedMechanism | None = None) -> dict[str, Any]:
    """Return the JSON object of ``nas mechanisms``, about one or about all named mechanisms."""

    def entry(mechanism: NamedMechanism) -> dict[str, Any]:
        cost = price(mechanism.genome, sizes).cost
        return {
            "name": mechanism.name,
            "paper": mechanism.paper,
            "about": mechanism.about,
            "reading": mechanism.reading,
            "digest": digest(mechanism.genome),
            "formula": formula(mechanism.genome),
            "genome": mechanism.genome.to_dict(),
            "costs": cost.to_dict() if cost else None,
        }

    if mechanism is not None:
        return {"sizes": asdict(sizes)} | entry(mechanism)
    return {"sizes": asdict(sizes), "mechanisms": [*map(entry, MECHANISMS.values())]}


def mechanisms_lines(sizes: Sizes, width: int | None) -> list[Text]:
    """Return the lines of a table of all named mechanisms with costs, papers and formulas.

    Papers and formulas are below the rows if these would be wider than ``width`` characters.
    """
    mechanisms = list(MECHANISMS.values())
    formulas = [formula(m.genome) for m in mechanisms]
    costs = [price(m.genome, sizes, default_costs()).cost for m in mechanisms]
    numbers = [
        TextColumn(
            header(n), [human(getattr(c, n)) if c else "-" for c in costs], "right", rank=rank
        )
        for rank, n in enumerate(default_costs())
    ]
    columns = [TextColumn("name", [m.name for m in mechanisms], style="cyan"), *numbers]
    papers = TextColumn("paper", [m.paper for m in mechanisms])
    lines = table_lines([*columns, papers, TextColumn("formula", formulas)])
    if width is None or max(line.cell_len for line in lines) <= width:
        return lines
    head, *rows = table_lines(columns, width)
    lines = [head]
    for row, paper, text in zip(rows, papers.cells, formulas, strict=True):
        below = wrap(f"{paper}: {text}", width, initial_indent=GAP * 2, subsequent_indent=GAP * 3)
        lines += [row, *(Text(line, "dim", no_wrap=True) for line in below)]
    return lines


def show_mechanisms(console: Console, sizes: Sizes) -> None:
    """Print a table of all named mechanisms with costs, papers and formulas."""
    say(console, f"One attention block at {sizes}:", "")
    say_lines(console, mechanisms_lines(sizes, line_width(console)))
    say(console, "", "next: nas mechanisms NAME · nas show NAME · nas evaluate NAME mha")


def show_mechanism(console: Console, mechanism: NamedMechanism, sizes: Sizes) -> None:
    """Print a named mechanism: description, formula, and costs relative to standard attention."""
    name = mechanism.name
    say(console, Text.assemble((name, "bold"), f"   {mechanism.paper}"), "", mechanism.reading, "")
    say(console, Text("Formula", "bold"), formula(mechanism.genome), "")
    say(console, Text(f"One attention block at {sizes}", "bold"))
    show_price(console, price(mechanism.genome, sizes), sizes, name)
    others = "" if name == STANDARD else f" {STANDARD}"
    steps = f"nas show {name} · nas evaluate {name}{others} · nas export {name} -o FILE"
    say(console, "", f"next: {steps}")


def _times(table: CostTable) -> list[TextColumn]:
    """Return a column of times for each length; none if times were not measured."""
    columns = []
    for rows in zip(*table.by_source, strict=True):
        title = "time ms" if len(table.lengths) == 1 else f"{rows[0].tokens:,}"
        cells = [digits(row.time_ms) for row in rows if row.time_ms is not None]
        columns += [TextColumn(title, cells, "right")] if cells else []
    return columns


def _range(rows: Sequence[CostRow], name: str) -> str:
    known = sorted(
        (row for row in rows if name in row.cost.values), key=lambda r: r.cost.values[name]
    )
    cells = dict.fromkeys(row.cell(name, "{:,}".format) for row in (known[:1] + known[-1:]))
    return " to ".join(cells) or "-"
