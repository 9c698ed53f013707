"""The named mechanisms with their costs at one size: all as a table, one with its reading."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.text import Text

from nas.canonical import digest
from nas.compiler import formula
from nas.costs import attention_cost
from nas.errors import GenomeError
from nas.mechanisms import MECHANISMS, mechanism
from nas.report.show import COST_NAMES
from nas.report.table import GAP, Column, room, say, say_table, table_lines
from nas.report.units import human

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from nas.costs import Cost
    from nas.mechanisms import Mechanism
    from nas.report.show import Sizes

STANDARD = "mha"


@dataclass(frozen=True)
class Priced:
    """A mechanism and what one block of it costs.

    Attributes:
        cost: None where it does not exist at the size; ``problem`` says why.
    """

    mechanism: Mechanism
    cost: Cost | None
    problem: str = ""


def priced(sizes: Sizes) -> list[Priced]:
    """All named mechanisms with their costs."""
    return [price(name, sizes) for name in MECHANISMS]


def price(name: str, sizes: Sizes) -> Priced:
    """One named mechanism with its costs.

    Raises:
        GenomeError: there is none of that name.
    """
    found = mechanism(name)
    try:
        return Priced(found, attention_cost(found.genome, **asdict(sizes)))
    except GenomeError as error:
        return Priced(found, None, f"{name} does not exist at these sizes: {error}")


def mechanisms_answer(mechanisms: Sequence[Priced], sizes: Sizes) -> dict[str, Any]:
    """The JSON answer of ``nas mechanisms``."""
    return {"sizes": asdict(sizes), "mechanisms": [_item(found) for found in mechanisms]}


def mechanism_answer(found: Priced, sizes: Sizes) -> dict[str, Any]:
    """The JSON answer of ``nas mechanisms NAME``."""
    return {"sizes": asdict(sizes)} | _item(found)


def mechanisms_lines(mechanisms: Sequence[Priced], width: int | None) -> list[Text]:
    """The table, a row a mechanism; where rows would not fit, formulas stand below their row."""
    formulas = tuple(formula(p.mechanism.genome) for p in mechanisms)
    columns = _columns(mechanisms)
    lines = table_lines([*columns, Column("formula", formulas)])
    if width is None or max(line.cell_len for line in lines) <= width:
        return lines
    header, *rows = table_lines(columns, width)
    pairs = zip(rows, formulas, strict=True)
    return [header, *(line for row, text in pairs for line in (row, *_below(text, width)))]


def show_mechanisms(console: Console, mechanisms: Sequence[Priced], sizes: Sizes) -> None:
    """Print the table."""
    say(console, f"{_at(sizes)}:", "")
    for line in mechanisms_lines(mechanisms, room(console)):
        console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)
    say(console, "", "next: nas mechanisms NAME · nas show NAME · nas evaluate NAME mha")


def show_mechanism(console: Console, found: Priced, sizes: Sizes) -> None:
    """Print one mechanism: its reading, its formula, and its costs beside standard attention's."""
    name = found.mechanism.name
    say(console, Text.assemble((name, "bold"), f"   {found.mechanism.paper}"), "")
    say(console, found.mechanism.reading)
    say(console, "", Text("Formula", "bold"), formula(found.mechanism.genome))
    say(console, "", Text(_at(sizes), "bold"))
    if found.cost is None:
        say(console, found.problem)
    else:
        standard = price(STANDARD, sizes).cost
        assert standard is not None, "standard attention exists wherever another one does"
        say_table(console, _cost_columns(name, found.cost, standard))
    others = "" if name == STANDARD else f" {STANDARD}"
    steps = f"nas show {name} · nas evaluate {name}{others} · nas export {name} -o FILE"
    say(console, "", f"next: {steps}")


def _item(found: Priced) -> dict[str, Any]:
    genome = found.mechanism.genome
    return {
        "name": found.mechanism.name,
        "paper": found.mechanism.paper,
        "about": found.mechanism.about,
        "reading": found.mechanism.reading,
        "digest": digest(genome),
        "formula": formula(genome),
        "genome": genome.to_dict(),
        "costs": found.cost.to_dict() if found.cost else None,
    }


def _at(sizes: Sizes) -> str:
    return f"One attention block at dim {sizes.dim}, {sizes.heads} heads, {sizes.tokens} tokens"


def _below(text: str, width: int) -> list[Text]:
    """A formula under its row, broken between words where it must be."""
    lines = wrap(text, width, initial_indent=GAP * 2, subsequent_indent=GAP * 3)
    return [Text(line, "dim", no_wrap=True) for line in lines]


def _columns(mechanisms: Sequence[Priced]) -> list[Column]:
    found = [p.mechanism for p in mechanisms]
    return [
        Column("name", tuple(m.name for m in found), style="cyan"),
        Column("MACs", _numbers(mechanisms, "macs"), "right"),
        Column("params", _numbers(mechanisms, "params"), "right", rank=1),
        Column("KV B/token", _numbers(mechanisms, "kv_cache_bytes_per_token"), "right", rank=1),
        Column("paper", tuple(m.paper for m in found), rank=2),
    ]


def _numbers(mechanisms: Sequence[Priced], name: str) -> tuple[str, ...]:
    return tuple(human(getattr(p.cost, name)) if p.cost else "-" for p in mechanisms)


def _cost_columns(name: str, cost: Cost, standard: Cost) -> list[Column]:
    own, whole = cost.to_dict(), standard.to_dict()
    columns = [
        Column("", tuple(COST_NAMES.values())),
        Column(name, tuple(human(own[key]) for key in COST_NAMES), "right"),
    ]
    if name == STANDARD:
        return columns
    ratios = (f"{own[key] / whole[key]:.2f}" for key in COST_NAMES)
    return [
        *columns,
        Column(STANDARD, tuple(human(whole[key]) for key in COST_NAMES), "right"),
        Column("ratio", tuple(ratios), "right", style="dim", rank=1),
    ]
