"""A genome's graph as text: vertical lines are values, dots are operations.

    q        q = x·W_Q                        tokens[H, d/H]
    │ k      k = x·W_K                        tokens[H, d/H]
    │ │ v    v = x·W_V                        tokens[H, d/H]
    ●─┘ │    scores_0 = dot(q, k)             scores[H]
    ●   │    weights_1 = softmax(scores_0)    weights[H]
    ●───┘    tokens_2 = sum(weights_1, v)     tokens[H, d/H]
    ▼        output = W_O(heads side by side)

Each operation has one row, in order of execution. Values have the names of the exported
source code. The vertical line of a value ends at the last operation that reads the value. Where a
vertical line and a horizontal connection cross, the vertical line is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nas.genome import STREAMS, Genome, Node, ParamValue, Projections, Ref
from nas.genome.primitives import get
from nas.genome.types import infer
from nas.report.table import Column, Table

# The character with lines up (8), down (4), to the left (2) and to the right (1), at their sum.
CHARACTERS: Final = "   ─    ╵└┘┴│├┤┼"


@dataclass(frozen=True)
class Drawn:
    """A row of the drawing: the lines, a value's name, its operation as a call, and its type."""

    rails: str
    value: str
    expression: str
    type: str


def drawing(genome: Genome) -> list[Drawn]:
    """Return the rows of the drawing of a genome's graph; the genome may violate rules."""
    typing, projections = infer(genome), genome.projections
    names: dict[Ref, str] = {s: s for s in STREAMS}
    names |= {i: f"{type_.kind if type_ else 'node'}_{i}" for i, type_ in enumerate(typing.nodes)}
    last_read = {ref: i for i, node in enumerate(genome.nodes) for ref in node.inputs}
    rows, columns = [], list[Ref | None]()  # the value of each vertical line
    for stream in (s for s in STREAMS if s in last_read):
        rails = "│ " * len(columns) + stream
        columns.append(stream)
        source = _stream(projections, stream)
        rows.append(Drawn(rails, stream, source, str(typing.streams[stream])))
    for index, node in enumerate(genome.nodes):
        rails, type_ = _join(columns, node, index, last_read), str(typing.nodes[index] or "?")
        if index not in last_read and index < len(genome.nodes) - 1:
            columns[columns.index(index)] = None
        rows.append(Drawn(rails, names[index], _call(node, names), type_))
    if genome.nodes:
        rails = "".join("  " if ref is None else "▼ " for ref in columns).rstrip()
        rows.append(Drawn(rails, "output", output_text(projections), ""))
    return rows


def drawing_table(rows: Sequence[Drawn]) -> Table[Drawn]:
    """Return a table without header that shows the drawing."""
    columns = [
        Column[Drawn]("rails", "", lambda row: row.rails, is_number=False, style="cyan"),
        Column("value", "", lambda r: f"{r.value} = {r.expression}", is_number=False, least=20),
        Column("type", "", lambda row: row.type, is_number=False, style="dim", rank=1),
    ]
    return Table(columns, rows)


def output_text(projections: Projections) -> str:
    """Return how the heads become the output, such as "W_O(heads side by side)"."""
    merged = "sum of heads" if projections.merge == "sum" else "heads side by side"
    return f"W_O({merged})" if projections.has_wo else merged


def value_text(value: ParamValue) -> str:
    """Return the value of a node's parameter as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _join(columns: list[Ref | None], node: Node, index: int, last_read: dict[Ref, int]) -> str:
    """Return the lines in the row of a node, and update ``columns`` for the next row.

    The node's dot is in the column of an operand that no later node reads; if there is none, in a
    free column.
    """
    operands = {i: ref for i, ref in enumerate(columns) if ref is not None and ref in node.inputs}
    ending = [i for i, ref in operands.items() if last_read[ref] <= index]
    if not ending and None not in columns:
        columns.append(None)
    at = ending[0] if ending else columns.index(None)
    low, high = min([at, *operands]), max([at, *operands])
    rails = ""
    for i, ref in enumerate(columns):
        is_crossed = ref is not None and i not in operands
        across = 0 if is_crossed else 2 * (low < i <= high) + (low <= i < high)
        upright = 0 if ref is None else 8 + 4 * (i not in ending)
        rails += "●" if i == at else CHARACTERS[upright + across]
        rails += "─" if low <= i < high else " "
    columns[:] = [None if i in ending else ref for i, ref in enumerate(columns)]
    columns[at] = index
    return rails.rstrip()


def _call(node: Node, names: dict[Ref, str]) -> str:
    operands = [names[ref] for ref in node.inputs]
    # The block's input reaches some operations beside their operands: gates, and QANA's tail.
    operands += [name for name in get(node.op).extras if name == "x"]
    params = [f"{name}={value_text(value)}" for name, value in node.params]
    return f"{node.op}({', '.join([*operands, *params])})"


def _stream(projections: Projections, stream: str) -> str:
    if projections.has_projection(stream):
        return f"x·W_{stream.upper()}"
    return "x, cut into heads" if projections.raw == "slice" else "x, whole for every head"
