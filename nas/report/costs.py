"""Costs of mechanisms: the results of ``nas.cost`` and ``nas mechanisms``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.console import Console

from nas.common.errors import GenomeError
from nas.compiler import formula
from nas.costs import COSTS, attention_cost, default_costs
from nas.genome import ModelSizes
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS
from nas.report.comparison import MARK, MEASURED
from nas.report.result import Result
from nas.report.table import Column, Table, say, say_table
from nas.report.units import header, human
from nas.store.sources import Source
from nas.training.user_module import UserModule

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Sizes:
    """The sizes of the attention block for which costs and source code are computed."""

    dim: int = 64
    heads: int = 4
    tokens: int = 65
    qkv_bias: bool = False

    def __str__(self) -> str:
        bias = ", q/k/v biases" if self.qkv_bias else ""
        return f"dim {self.dim}, {self.heads} heads, {self.tokens:,} tokens{bias}"


def sizes_of(sources: Iterable[Source], **given: int | None) -> Sizes:
    """Return given sizes, or else those of the task of the first run that a source names."""
    sizes, task = Sizes(), next((source.task() for source in sources if source.run), None)
    if task is not None:
        model = task.main.sizes
        sizes = Sizes(model.dim, model.heads, model.tokens, task.main.qkv_bias)
    chosen: dict[str, Any] = {name: size for name, size in given.items() if size is not None}
    return replace(sizes, **chosen)


@dataclass(frozen=True)
class CostRow:
    """The costs of an attention block at one sequence length; a torch module may lack some."""

    source: str
    name: str
    tokens: int
    cost: dict[str, int]
    is_measured: bool = False


@dataclass(frozen=True)
class CostTable(Result):
    """Costs of mechanisms in a model of width ``dim`` at batch size 1, by mechanism and length."""

    dim: int
    heads: int
    rows: tuple[CostRow, ...]

    @property
    def table(self) -> pandas.DataFrame:
        """One row for each mechanism and length."""
        return _costs_table(self.rows).frame()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``nas cost --json`` prints, whose rows are ``table``."""
        return {"dim": self.dim, "heads": self.heads, "rows": _costs_table(self.rows).records()}


def _costs_table(rows: Sequence[CostRow]) -> Table[CostRow]:
    columns = [
        Column[CostRow]("source", None, lambda row: row.source),
        Column("name", "mechanism", lambda row: row.name, is_number=False),
        Column("tokens", "tokens", lambda row: row.tokens, text=lambda row: f"{row.tokens:,}"),
        *_costs(),
    ]
    if any(row.is_measured for row in rows):
        columns.append(Column("measured", None, lambda row: row.is_measured))
    return Table(columns, rows)


def _costs() -> list[Column[CostRow]]:
    """Return a column for each cost; an unknown cost is "-", a measured one has a mark."""

    def column(name: str, rank: int) -> Column[CostRow]:
        def text(row: CostRow) -> str:
            return human(row.cost[name]) + MARK * row.is_measured if name in row.cost else "-"

        return Column(name, header(name), lambda row: row.cost.get(name), text=text, rank=rank)

    names = [cost.name for cost in COSTS.registered.values() if cost.is_counted]
    return [column(name, rank) for rank, name in enumerate(names)]


def count_costs(
    sources: Sequence[Source], dim: int, heads: int, lengths: Iterable[int]
) -> CostTable:
    """Return the costs of one attention block of each mechanism at each sequence length.

    The costs of a user's own torch module are measured. A mechanism that cannot be built at these
    sizes raises GenomeError or ViolationError, a user's own module ConfigError.
    """
    rows, lengths = [], sorted({*lengths})
    for source in sources:
        if isinstance(source.mechanism, UserModule):
            module, text = source.mechanism, source.text
            rows += [_measured_row(text, module, ModelSizes(dim, heads, 1, n)) for n in lengths]
            continue
        for tokens in lengths:
            cost = attention_cost(source.genome, dim=dim, heads=heads, tokens=tokens)
            rows.append(CostRow(source.text, source.name, tokens, cost))
    return CostTable(dim, heads, tuple(rows))


def _measured_row(text: str, module: UserModule, sizes: ModelSizes) -> CostRow:
    from nas.training.user_check import check_user_module, module_costs

    check_user_module(module, sizes, is_causal=False)
    costs = module_costs(module, sizes, is_causal=False)
    cost = {name: math.ceil(value) for name, value in costs.items()}
    return CostRow(text, module.class_name, sizes.tokens, cost, is_measured=True)


def show_costs(console: Console, result: CostTable) -> None:
    """Print the costs of each mechanism at each sequence length as a table."""
    say(console, f"One attention block at dim {result.dim}, heads {result.heads}, batch 1:", "")
    say_table(console, _costs_table(result.rows))
    if any(row.is_measured for row in result.rows):
        say(console, "", MEASURED)


def mechanisms_table(sizes: Sizes) -> Table[CostRow]:
    """Return the named mechanisms; one that does not exist at these sizes has no costs."""
    rows = []
    for name in MECHANISMS:
        cost: dict[str, int] = {}
        with suppress(GenomeError):
            cost = attention_cost(MECHANISMS[name].genome, **asdict(sizes))
        rows.append(CostRow(name, name, sizes.tokens, cost))

    def of(field: str, title: str | None = None, **options: Any) -> Column[CostRow]:
        value = lambda row: getattr(MECHANISMS[row.name], field)  # noqa: E731
        return Column(field, title, value, is_number=False, **options)

    def genome(row: CostRow) -> Any:
        return MECHANISMS[row.name].genome

    numbers = [c if c.key in default_costs() else replace(c, title=None) for c in _costs()]
    columns = [
        of("name", "name", style="cyan"),
        *numbers,
        of("paper", "paper", rank=len(numbers), least=12),
        Column("formula", "formula", lambda r: formula(genome(r)), is_number=False, least=20),
        of("about"),
        of("reading"),
        Column("digest", None, lambda r: digest(genome(r))),
        Column("genome", None, lambda r: genome(r).to_dict()),
    ]
    return Table(columns, rows)


def show_mechanisms(console: Console, sizes: Sizes) -> None:
    """Print a table of all named mechanisms with costs, papers and formulas."""
    say(console, f"One attention block at {sizes}:", "")
    say_table(console, mechanisms_table(sizes))
    say(console, "", "next: nas show NAME · nas evaluate mha NAME --seeds 5")
