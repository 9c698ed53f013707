"""The named mechanisms with their costs at one size: all as a table, one with its reading."""

from __future__ import annotations

from dataclasses import asdict
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.text import Text

from nas.compiler import formula
from nas.costs import default_costs
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS
from nas.report.costs import price, show_price
from nas.report.run_view import STANDARD
from nas.report.table import GAP, TextColumn, line_width, say, say_lines, table_lines
from nas.report.units import header, human

if TYPE_CHECKING:
    from rich.console import Console

    from nas.genome.mechanisms import NamedMechanism
    from nas.report.costs import Sizes


def mechanisms_answer(sizes: Sizes, found: NamedMechanism | None = None) -> dict[str, Any]:
    """The JSON answer of ``nas mechanisms``: of all, or of one alone."""
    if found is not None:
        return {"sizes": asdict(sizes)} | _item(found, sizes)
    items = [_item(found, sizes) for found in MECHANISMS.values()]
    return {"sizes": asdict(sizes), "mechanisms": items}


def mechanisms_lines(sizes: Sizes, width: int | None) -> list[Text]:
    """The table, a row a mechanism; where rows would not fit, formulas stand below their row."""
    found = list(MECHANISMS.values())
    formulas = [formula(m.genome) for m in found]
    costs = [price(m.genome, sizes).cost for m in found]
    numbers = [
        TextColumn(
            header(n), [human(getattr(c, n)) if c else "-" for c in costs], "right", rank=rank
        )
        for rank, n in enumerate(default_costs())
    ]
    columns = [
        TextColumn("name", [m.name for m in found], style="cyan"),
        *numbers,
        TextColumn("paper", [m.paper for m in found], rank=2),
    ]
    lines = table_lines([*columns, TextColumn("formula", formulas)])
    if width is None or max(line.cell_len for line in lines) <= width:
        return lines
    head, *rows = table_lines(columns, width)
    lines = [head]
    for row, text in zip(rows, formulas, strict=True):
        below = wrap(text, width, initial_indent=GAP * 2, subsequent_indent=GAP * 3)
        lines += [row, *(Text(line, "dim", no_wrap=True) for line in below)]
    return lines


def show_mechanisms(console: Console, sizes: Sizes) -> None:
    """Print the table."""
    say(console, f"One attention block at {sizes}:", "")
    say_lines(console, mechanisms_lines(sizes, line_width(console)))
    say(console, "", "next: nas mechanisms NAME · nas show NAME · nas evaluate NAME mha")


def show_mechanism(console: Console, found: NamedMechanism, sizes: Sizes) -> None:
    """Print one mechanism: its reading, its formula, and its costs beside standard attention's."""
    name = found.name
    say(console, Text.assemble((name, "bold"), f"   {found.paper}"), "", found.reading, "")
    say(console, Text("Formula", "bold"), formula(found.genome), "")
    say(console, Text(f"One attention block at {sizes}", "bold"))
    show_price(console, price(found.genome, sizes), sizes, name)
    others = "" if name == STANDARD else f" {STANDARD}"
    steps = f"nas show {name} · nas evaluate {name}{others} · nas export {name} -o FILE"
    say(console, "", f"next: {steps}")


def _item(found: NamedMechanism, sizes: Sizes) -> dict[str, Any]:
    cost = price(found.genome, sizes).cost
    return {
        "name": found.name,
        "paper": found.paper,
        "about": found.about,
        "reading": found.reading,
        "digest": digest(found.genome),
        "formula": formula(found.genome),
        "genome": found.genome.to_dict(),
        "costs": cost.to_dict() if cost else None,
    }
