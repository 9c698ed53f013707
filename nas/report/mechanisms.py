"""The named mechanisms with their costs: a table of all, or one with its description."""

from __future__ import annotations

from dataclasses import asdict
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.text import Text

from nas.compiler import formula
from nas.costs import default_costs
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS, NamedMechanism
from nas.report.costs import Sizes, price, show_price
from nas.report.run_view import STANDARD
from nas.report.table import GAP, TextColumn, line_width, say, say_lines, table_lines
from nas.report.units import header, human


def mechanisms_answer(sizes: Sizes, mechanism: NamedMechanism | None = None) -> dict[str, Any]:
    """The JSON answer of ``nas mechanisms``, about all mechanisms or one."""
    if mechanism is not None:
        return {"sizes": asdict(sizes)} | _item(mechanism, sizes)
    items = [_item(mechanism, sizes) for mechanism in MECHANISMS.values()]
    return {"sizes": asdict(sizes), "mechanisms": items}


def mechanisms_lines(sizes: Sizes, width: int | None) -> list[Text]:
    """The table of all mechanisms; formulas have separate lines if rows are too wide."""
    mechanisms = list(MECHANISMS.values())
    formulas = [formula(m.genome) for m in mechanisms]
    costs = [price(m.genome, sizes).cost for m in mechanisms]
    numbers = [
        TextColumn(
            header(n), [human(getattr(c, n)) if c else "-" for c in costs], "right", rank=rank
        )
        for rank, n in enumerate(default_costs())
    ]
    columns = [
        TextColumn("name", [m.name for m in mechanisms], style="cyan"),
        *numbers,
        TextColumn("paper", [m.paper for m in mechanisms], rank=2),
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


def show_mechanism(console: Console, mechanism: NamedMechanism, sizes: Sizes) -> None:
    """Print a mechanism: its description, formula, and costs relative to standard attention."""
    name = mechanism.name
    say(console, Text.assemble((name, "bold"), f"   {mechanism.paper}"), "", mechanism.reading, "")
    say(console, Text("Formula", "bold"), formula(mechanism.genome), "")
    say(console, Text(f"One attention block at {sizes}", "bold"))
    show_price(console, price(mechanism.genome, sizes), sizes, name)
    others = "" if name == STANDARD else f" {STANDARD}"
    steps = f"nas show {name} · nas evaluate {name}{others} · nas export {name} -o FILE"
    say(console, "", f"next: {steps}")


def _item(mechanism: NamedMechanism, sizes: Sizes) -> dict[str, Any]:
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
