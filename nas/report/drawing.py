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
from nas.report.table import TextColumn

# The character of an operand's line: (is leftmost, is rightmost, continues).
JOINTS: Final = {
    (True, False, True): "├",
    (True, False, False): "└",
    (False, True, True): "┤",
    (False, True, False): "┘",
    (False, False, True): "┼",
    (False, False, False): "┴",
}


@dataclass(frozen=True)
class Drawn:
    """One row of a drawing of a genome's graph.

    Attributes:
        rails: the vertical lines of values, and the connections between them.
        value: name of the value that the operation returns.
        expression: the operation as a call.
        type: type of the value; empty for the output.
    """

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
    lines, columns = [], list[Ref | None]()  # the value that each column of the rails holds
    for stream in (s for s in STREAMS if s in last_read):
        rails = "│ " * len(columns) + stream
        columns.append(stream)
        lines.append(
            Drawn(rails, stream, _stream(projections, stream), str(typing.streams[stream]))
        )
    for index, node in enumerate(genome.nodes):
        rails, type_ = _join(columns, node, index, last_read), str(typing.nodes[index] or "?")
        if index not in last_read and index < len(genome.nodes) - 1:
            columns[columns.index(index)] = None
        lines.append(Drawn(rails, names[index], _call(node, names), type_))
    if genome.nodes:
        merged = "sum of the heads" if projections.merge == "sum" else "heads side by side"
        output = f"W_O({merged})" if projections.has_wo else merged
        rails = "".join("  " if ref is None else "▼ " for ref in columns).rstrip()
        lines.append(Drawn(rails, "output", output, ""))
    return lines


def drawing_columns(lines: Sequence[Drawn]) -> list[TextColumn]:
    """Return the columns of a table without header that shows the drawing."""
    return [
        TextColumn("", [line.rails for line in lines], style="cyan"),
        TextColumn("", [f"{line.value} = {line.expression}" for line in lines], least=20),
        TextColumn("", [line.type for line in lines], style="dim", rank=1),
    ]


def _join(columns: list[Ref | None], node: Node, index: int, last_read: dict[Ref, int]) -> str:
    """Return the lines and the dot in the drawing's row of a node, and update ``columns``.

    The dot is connected to the vertical lines of the operands. It is in the column of an operand
    that no later node reads; if there is no such operand, in a free column.

    Args:
        columns: the value that each column of the drawing shows; None for a free column.
        index: index of the node.
        last_read: index of the last node that reads each value.
    """
    operands = {i: ref for i, ref in enumerate(columns) if ref is not None and ref in node.inputs}
    ending = [i for i, ref in operands.items() if last_read[ref] <= index]
    if not ending and None not in columns:
        columns.append(None)
    at = ending[0] if ending else columns.index(None)
    low, high = min([at, *operands]), max([at, *operands])
    line = ""
    for i, ref in enumerate(columns):
        if i == at:
            line += "●"
        elif i in operands:
            line += JOINTS[i == low, i == high, i not in ending]
        elif ref is not None:
            line += "│"
        else:
            line += "─" if low < i < high else " "
        line += "─" if low <= i < high else " "
    for i in ending:
        columns[i] = None
    columns[at] = index
    return line.rstrip()


def _call(node: Node, names: dict[Ref, str]) -> str:
    operands = [names[ref] for ref in node.inputs]
    # The block's input reaches some operations beside their operands: gates, and QANA's tail.
    operands += [name for name in get(node.op).extras if name == "x"]
    params = [f"{name}={_value(value)}" for name, value in node.params]
    return f"{node.op}({', '.join([*operands, *params])})"


def _value(value: ParamValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _stream(projections: Projections, stream: str) -> str:
    if projections.has_projection(stream):
        return f"x·W_{stream.upper()}"
    return "x, cut into heads" if projections.raw == "slice" else "x, whole for every head"
