"""Costs of mechanisms: the results of ``nas.cost`` and ``nas mechanisms``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.text import Text

from nas.common.errors import GenomeError
from nas.compiler import build_attention, formula, make_plan, resolve
from nas.costs import COSTS, attention_cost, default_costs
from nas.genome import Genome, ModelSizes
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS, NamedMechanism, mechanism
from nas.report.columns import Column, records, text_columns
from nas.report.comparison import MARK, MEASURED
from nas.report.result import Result, data_frame
from nas.report.run_view import STANDARD
from nas.report.table import TextColumn, say, say_table
from nas.report.units import digits, header, human
from nas.store.sources import Source
from nas.training.user_module import UserModule

if TYPE_CHECKING:
    import pandas

MOST_EXACT: Final = 1_000_000  # columns of smaller costs show all digits


@dataclass(frozen=True)
class Sizes:
    """The sizes of the attention block for which costs and source code are computed.

    ``qkv_bias`` says whether the projections to queries, keys and values have biases.
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
    """The cost of an attention block; or None and the reason why the block cannot be built."""

    cost: dict[str, int] | None
    problem: str = ""


@dataclass(frozen=True)
class CostRow:
    """The cost of one attention block of a mechanism at one sequence length.

    ``remarks`` are sentences on the effects of the head count. The cost ``is_measured`` if the
    mechanism is a user's own torch module; costs that cannot be measured are missing. ``time_ms``
    are milliseconds of a forward and backward pass on one thread of this machine's CPU; None if
    there is no module in the table.
    """

    source: str
    name: str
    tokens: int
    cost: dict[str, int]
    remarks: tuple[str, ...] = ()
    is_measured: bool = False
    time_ms: float | None = None


@dataclass(frozen=True)
class CostTable(Result):
    """Costs of mechanisms in a model of width ``dim``, by sequence length, at batch size 1.

    ``rows`` are grouped by mechanism, then sorted by length.
    """

    dim: int
    heads: int
    rows: tuple[CostRow, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The sequence lengths in tokens, from short to long."""
        return tuple(sorted({row.tokens for row in self.rows}))

    @property
    def columns(self) -> list[Column[CostRow]]:
        """The columns of the table; times only if a user's own torch module is in it."""
        columns = [
            Column[CostRow]("source", "", lambda row: row.source),
            Column("name", "mechanism", lambda row: row.name, is_number=False),
            Column("tokens", "tokens", lambda row: row.tokens, text=lambda row: f"{row.tokens:,}"),
            *_costs(self.rows),
        ]
        if any(row.is_measured for row in self.rows):
            time = lambda row: "" if row.time_ms is None else digits(row.time_ms)  # noqa: E731
            columns.append(Column("time_ms", "time ms", lambda row: row.time_ms, text=time))
            columns.append(Column("measured", "", lambda row: row.is_measured))
        return columns

    @property
    def table(self) -> pandas.DataFrame:
        """One row for each mechanism and length."""
        return data_frame(records(self.columns, self.rows))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``nas cost --json`` prints, whose rows are ``table``."""
        rows = records(self.columns, self.rows)
        return {"dim": self.dim, "heads": self.heads, "rows": rows}


def _costs(rows: Sequence[CostRow]) -> list[Column[CostRow]]:
    """Return a column for each cost; an unknown cost is "-", a measured one has a mark."""

    def column(name: str, rank: int) -> Column[CostRow]:
        is_exact = max(row.cost.get(name, 0) for row in rows) < MOST_EXACT

        def text(row: CostRow) -> str:
            known = row.cost.get(name)
            if known is None:
                return "-"
            shown = f"{known:,}" if is_exact else human(known)
            return shown + MARK * row.is_measured

        value = lambda row: row.cost.get(name)  # noqa: E731
        return Column(name, header(name), value, text=text, rank=rank)

    names = [cost.name for cost in COSTS.registered.values() if cost.is_counted]
    return [column(name, rank) for rank, name in enumerate(names)]


def count_costs(
    sources: Sequence[Source], dim: int, heads: int, lengths: Iterable[int]
) -> CostTable:
    """Return the costs of one attention block of each mechanism at each sequence length.

    If a mechanism is a user's own torch module, its costs and the times of all are measured.

    Raises:
        GenomeError, ViolationError: a mechanism cannot be built at these sizes.
        ConfigError: a user's own module cannot be built at these sizes.
    """
    rows, lengths = [], sorted({*lengths})
    for source in sources:
        if isinstance(source.mechanism, UserModule):
            module, text = source.mechanism, source.text
            rows += [_measured_row(text, module, ModelSizes(dim, heads, 1, n)) for n in lengths]
            continue
        remarks = tuple(f"{remark}." for remark in make_plan(source.genome).remarks(heads))
        for tokens in lengths:
            cost = attention_cost(source.genome, dim=dim, heads=heads, tokens=tokens)
            rows.append(CostRow(source.text, source.name, tokens, cost, remarks))
    if any(row.is_measured for row in rows):
        rows = _timed(rows, sources, [ModelSizes(dim, heads, 1, n) for n in lengths])
    return CostTable(dim, heads, tuple(rows))


def _measured_row(text: str, module: UserModule, sizes: ModelSizes) -> CostRow:
    from nas.training.user_check import check_user_module, module_costs

    check_user_module(module, sizes, is_causal=False)
    costs = module_costs(module, sizes, is_causal=False)
    cost = {name: math.ceil(value) for name, value in costs.items()}
    return CostRow(text, module.class_name, sizes.tokens, cost, is_measured=True)


def _timed(
    rows: Sequence[CostRow], sources: Sequence[Source], lengths: Sequence[ModelSizes]
) -> list[CostRow]:
    """Return rows, grouped by source and sorted by length, with measured times.

    A time is the lesser of two measurements, between which all others take their turn.
    """
    from nas.costs.timing.measuring import measured_ms
    from nas.training.user_check import module_ms

    def milliseconds(source: Source, sizes: ModelSizes) -> float:
        if isinstance(source.mechanism, UserModule):
            return module_ms(source.mechanism, sizes)
        plan = resolve(source.genome, sizes, is_causal=False).plan
        return measured_ms(build_attention(plan, sizes.dim, sizes.heads), sizes)

    rounds = [[milliseconds(s, sizes) for s in sources for sizes in lengths] for _ in range(2)]
    times = map(min, *rounds)
    return [replace(row, time_ms=time) for row, time in zip(rows, times, strict=True)]


def price(genome: Genome, sizes: Sizes) -> Priced:
    """Return the cost of an attention block of these sizes, or why the block cannot be built."""
    try:
        return Priced(attention_cost(genome, **asdict(sizes)))
    except GenomeError as error:
        return Priced(None, f"It does not exist at these sizes: {error}")


def show_price(console: Console, priced: Priced, sizes: Sizes, title: str = "") -> None:
    """Print a block's costs and ratios to standard attention, or why it cannot be built."""
    if priced.cost is None:
        say(console, priced.problem)
        return
    costs = priced.cost
    standard = attention_cost(mechanism(STANDARD).genome, **asdict(sizes))
    ratios = [f"{costs[n] / standard[n]:.2f} × {STANDARD}" if standard[n] else "" for n in costs]
    columns = [
        TextColumn("", [header(name) for name in costs]),
        TextColumn(title, [human(value) for value in costs.values()], "right"),
        TextColumn("", ratios, style="dim", rank=1),
    ]
    say_table(console, columns)


def show_costs(console: Console, table: CostTable) -> None:
    """Print the costs of each mechanism at each sequence length as a table."""
    say(console, f"One attention block at dim {table.dim}, heads {table.heads}, batch 1:", "")
    say_table(console, text_columns(table.columns, table.rows))
    if any(row.is_measured for row in table.rows):
        time = "time ms: a forward and backward pass, timed on one thread of this machine's CPU."
        say(console, "", MEASURED, time)
    remarks = (f"{row.name}: {remark}" for row in table.rows for remark in row.remarks)
    say(console, *dict.fromkeys(remarks))


def mechanisms_table(
    sizes: Sizes, names: Iterable[str] = MECHANISMS
) -> tuple[list[Column[CostRow]], list[CostRow]]:
    """Return a table of named mechanisms: its columns, and a row for each mechanism.

    A mechanism that does not exist at these sizes has no costs.
    """
    costs = {name: price(MECHANISMS[name].genome, sizes).cost or {} for name in names}
    rows = [CostRow(name, name, sizes.tokens, cost) for name, cost in costs.items()]

    def of(field: str, title: str = "", **options: Any) -> Column[CostRow]:
        value = lambda row: getattr(MECHANISMS[row.name], field)  # noqa: E731
        return Column(field, title, value, is_number=False, **options)

    def genome(row: CostRow) -> Any:
        return MECHANISMS[row.name].genome

    numbers = [c if c.key in default_costs() else replace(c, title="") for c in _costs(rows)]
    columns = [
        of("name", "name", style="cyan"),
        *numbers,
        of("paper", "paper", rank=len(numbers), least=12),
        Column("formula", "formula", lambda r: formula(genome(r)), is_number=False, least=20),
        of("about"),
        of("reading"),
        Column("digest", "", lambda r: digest(genome(r))),
        Column("genome", "", lambda r: genome(r).to_dict()),
    ]
    return columns, rows


def mechanisms_answer(sizes: Sizes, mechanism: NamedMechanism | None = None) -> dict[str, Any]:
    """Return the JSON object of ``nas mechanisms``, about one or about all named mechanisms."""
    if mechanism is None:
        return {"sizes": asdict(sizes), "mechanisms": records(*mechanisms_table(sizes))}
    (row,) = records(*mechanisms_table(sizes, [mechanism.name]))
    return {"sizes": asdict(sizes)} | row


def show_mechanisms(console: Console, sizes: Sizes) -> None:
    """Print a table of all named mechanisms with costs, papers and formulas."""
    say(console, f"One attention block at {sizes}:", "")
    say_table(console, text_columns(*mechanisms_table(sizes)))
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
