"""A genome's graph as text: vertical lines are values, dots are operations.

    q        q = x·W_Q                        tokens[H, d/H]
    │ k      k = x·W_K                        tokens[H, d/H]
    │ │ v    v = x·W_V                        tokens[H, d/H]
    ●─┘ │    scores_0 = dot(q, k)             scores[H]
    ●   │    weights_1 = softmax(scores_0)    weights[H]
    ●───┘    tokens_2 = sum(weights_1, v)     tokens[H, d/H]
    ▼        output = W_O(heads side by side)

One line for each operation, in order of execution; names are those of the emitted source. The line
of a value ends at its last reader and interrupts connections that cross it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nas.genome import STREAMS, Genome, Node, ParamValue, Projections, Ref
from nas.genome.primitives import get
from nas.genome.types import infer
from nas.report.table import TextColumn

DOT: Final = "●"
END: Final = "▼"
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
    """One line: the vertical lines, a value's name, its expression, and its type if it has one."""

    rails: str
    value: str
    expression: str
    type: str


def drawing(genome: Genome) -> list[Drawn]:
    """The graph of a genome, legal or not, line by line."""
    typing = infer(genome)
    names: dict[Ref, str] = {s: s for s in STREAMS}
    names |= {i: f"{type_.kind if type_ else 'node'}_{i}" for i, type_ in enumerate(typing.nodes)}
    streams = [s for s in STREAMS if any(s in node.inputs for node in genome.nodes)]
    rails = Rails(genome)
    lines = [
        Drawn(rails.start(s), s, _stream(genome.projections, s), str(typing.streams[s]))
        for s in streams
    ]
    for index, node in enumerate(genome.nodes):
        type_ = str(typing.nodes[index] or "?")
        lines.append(Drawn(rails.join(index), names[index], _call(node, names), type_))
    if genome.nodes:
        lines.append(Drawn(rails.end(), "output", _output(genome.projections), ""))
    return lines


def drawing_columns(lines: Sequence[Drawn]) -> list[TextColumn]:
    """The drawing as a table without header."""
    return [
        TextColumn("", [line.rails for line in lines], style="cyan"),
        TextColumn("", [f"{line.value} = {line.expression}" for line in lines], least=20),
        TextColumn("", [line.type for line in lines], style="dim", rank=1),
    ]


class Rails:
    """The left margin: the column of each value."""

    def __init__(self, genome: Genome) -> None:
        self._nodes = genome.nodes
        self._places: list[Ref | None] = []
        self._last = {ref: i for i, node in enumerate(genome.nodes) for ref in node.inputs}

    def start(self, stream: Ref) -> str:
        """The line of a stream."""
        self._places.append(stream)
        return " ".join([*("│" for _ in self._places[:-1]), str(stream)])

    def join(self, index: int) -> str:
        """The line of a node: the lines of its operands meet in its dot."""
        operands = set(self._nodes[index].inputs)
        places = [i for i, ref in enumerate(self._places) if ref is not None and ref in operands]
        dying = [i for i in places if not self._is_read_after(self._places[i], index)]
        at = dying[0] if dying else self._free()
        low, high = min([at, *places]), max([at, *places])
        line = ""
        for i in range(len(self._places)):
            if i == at:
                line += DOT
            elif i in places:
                line += JOINTS[i == low, i == high, i not in dying]
            elif self._places[i] is not None:
                line += "│"
            else:
                line += "─" if low < i < high else " "
            line += "─" if low <= i < high else " "
        for i in dying:
            self._places[i] = None
        is_output = index == len(self._nodes) - 1
        self._places[at] = index if index in self._last or is_output else None
        return line.rstrip()

    def end(self) -> str:
        """The line of the output."""
        return "".join(f"{END if ref is not None else ' '} " for ref in self._places).rstrip()

    def _is_read_after(self, ref: Ref | None, index: int) -> bool:
        return ref is not None and self._last[ref] > index

    def _free(self) -> int:
        """A free column, added if there is none."""
        if None not in self._places:
            self._places.append(None)
        return self._places.index(None)


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


def _output(projections: Projections) -> str:
    merged = "sum of the heads" if projections.merge == "sum" else "heads side by side"
    return f"W_O({merged})" if projections.has_wo else merged
