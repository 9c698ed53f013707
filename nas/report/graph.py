"""A genome's graph as text and as a picture.

The picture has streams on top, the output at the bottom, and colours by role. In the text, vertical
lines are values and dots are operations:

    q        q = x·W_Q                        tokens[H, d/H]
    │ k      k = x·W_K                        tokens[H, d/H]
    │ │ v    v = x·W_V                        tokens[H, d/H]
    ●─┘ │    scores_0 = dot(q, k)             scores[H]
    ●   │    weights_1 = softmax(scores_0)    weights[H]
    ●───┘    tokens_2 = sum(weights_1, v)     tokens[H, d/H]
    ▼        output = W_O(heads side by side)

Values have the names of the exported source code. The line of a value ends at the last operation
that reads the value, and is drawn over the horizontal lines that it crosses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, groupby, pairwise
from statistics import fmean
from typing import Final

import networkx as nx
from markupsafe import Markup

from nas.common.text import printable
from nas.genome import STREAMS, Genome, Node, ParamValue, Projections, Ref
from nas.genome.primitives import get
from nas.genome.types import infer
from nas.report.table import Table, words

GAP, LAYER, HEIGHT, LETTER, MARGIN = 22.0, 66.0, 38.0, 7.1, 8.0  # in pixels
ROUNDS: Final = 25
STREAM, BEND = "stream", "bend"
COLOURS: Final = {  # of roles, for light and dark backgrounds
    "score": "#3f7ddb",
    "normalize": "#d9700f",
    "aggregate": "#1f9d6b",
    "adjust": "#b08d0e",
    "position": "#1797a6",
    "gate": "#d6457a",
    "transform": "#9a5cc6",
    STREAM: "currentColor",
}
NO_ROLE: Final = "#7d8590"

_PICTURE: Final = Markup(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.1f} 0 {width:.1f} {height:g}" '
    'width="{width:.1f}" height="{height:g}" role="img" font-size="12.5" text-anchor="middle" '
    "font-family=\"'Segoe UI', 'Helvetica Neue', Arial, sans-serif\" "
    'style="max-width: 100%; height: auto"><title>{about}</title>'
    '<g fill="none" stroke="currentColor" stroke-width="1.4" stroke-opacity=".55">{wires}</g>'
    "{boxes}</svg>"
)
_WIRE: Final = Markup('<path d="M{x0:.1f} {y0:g}C{x0:.1f} {y:g} {x1:.1f} {y:g} {x1:.1f} {y1:g}"/>')
_BOX: Final = Markup(
    "<g><title>{box.role}: {box.words} {box.more}</title>"
    '<rect x="{left:.1f}" y="{top:g}" width="{box.width:.1f}" height="{height:g}" rx="{radius:g}" '
    'fill="{colour}" fill-opacity=".06" stroke="{colour}" stroke-opacity="{opacity}" '
    'stroke-width="1.4"/>'
    '<text x="{x:.1f}" y="{middle:g}" fill="currentColor">{box.words}</text>{details}</g>'
)
_DETAILS: Final = Markup(
    '<text x="{x:.1f}" y="{y:g}" fill="currentColor" fill-opacity=".7" font-size="10.5">{}</text>'
)


# The character with lines up (8), down (4), to the left (2) and to the right (1), at their sum.
CHARACTERS: Final = "   ─    ╵└┘┴│├┤┼"


def drawing(genome: Genome) -> Table[tuple[str, ...]]:
    """Return the drawing of a genome's graph as a table without headers: lines, value and type."""
    typing, projections = infer(genome), genome.projections
    names: dict[Ref, str] = {s: s for s in STREAMS}
    names |= {i: f"{type_.kind if type_ else 'node'}_{i}" for i, type_ in enumerate(typing.nodes)}
    last_read = {ref: i for i, node in enumerate(genome.nodes) for ref in node.inputs}
    rows, columns = list[tuple[str, ...]](), list[Ref | None]()  # the value of each vertical line
    for stream in (s for s in STREAMS if s in last_read):
        rails = "│ " * len(columns) + stream
        columns.append(stream)
        text = f"{stream} = {_stream(projections, stream)}"
        rows.append((rails, text, str(typing.streams[stream])))
    for index, node in enumerate(genome.nodes):
        rails, type_ = _join(columns, node, index, last_read), str(typing.nodes[index] or "?")
        if index not in last_read and index < len(genome.nodes) - 1:
            columns[columns.index(index)] = None
        rows.append((rails, f"{names[index]} = {_call(node, names)}", type_))
    if genome.nodes:
        rails = "".join("  " if ref is None else "▼ " for ref in columns).rstrip()
        rows.append((rails, f"output = {_output_text(projections)}", ""))
    return Table([words(0, style="cyan"), words(1, least=20), words(2, style="dim", rank=1)], rows)


def _output_text(projections: Projections) -> str:
    merged = "sum of heads" if projections.merge == "sum" else "heads side by side"
    return f"W_O({merged})" if projections.has_wo else merged


def _value_text(value: ParamValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _join(columns: list[Ref | None], node: Node, index: int, last_read: dict[Ref, int]) -> str:
    """Return the lines in the row of a node, and update ``columns`` for the next row."""
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
    params = [f"{name}={_value_text(value)}" for name, value in node.params]
    return f"{node.op}({', '.join([*operands, *params])})"


def _stream(projections: Projections, stream: str) -> str:
    if projections.has_projection(stream):
        return f"x·W_{stream.upper()}"
    return "x, cut into heads" if projections.raw == "slice" else "x, whole for every head"


@dataclass(frozen=True, eq=False)
class Box:
    """A box of the picture: a stream, a node, the output, or an invisible bend of a long wire.

    ``role`` is that of the node's operation, or "stream" (also for the output), or "bend". ``more``
    is a second line, with the node's parameters.
    """

    words: str
    role: str
    more: str = ""

    @property
    def width(self) -> float:
        """The width in pixels."""
        return max(len(self.words), 0.86 * len(self.more)) * LETTER + 26 if self.words else 6.0


def graph_svg(genome: Genome, about: str = "Graph of the mechanism") -> Markup:
    """Return the picture of a genome's graph as an SVG element, for light and dark backgrounds."""
    graph = box_graph(genome)
    layers = assign_layers(graph)
    x = place_boxes(graph, layers)
    left = min(x[box] - box.width / 2 for box in graph) - MARGIN
    right = max(x[box] + box.width / 2 for box in graph) + MARGIN
    return _PICTURE.format(
        left=left,
        width=right - left,
        height=LAYER * (1 + max(layers.values())),
        about=about,
        wires=Markup().join(_wire(x, layers, start, end) for start, end in graph.edges),
        boxes=Markup().join(_box(box, x[box], layers[box]) for box in graph if box.role != BEND),
    )


def box_graph(genome: Genome) -> nx.DiGraph[Box]:
    """Return the boxes of a genome, with an edge from each box to each box that reads its value."""
    boxes: dict[Ref, Box] = {}
    for stream in STREAMS:
        if any(stream in node.inputs for node in genome.nodes):
            source = f"x·W_{stream.upper()}" if genome.projections.has_projection(stream) else "x"
            boxes[stream] = Box(f"{stream} = {source}", STREAM)
    graph: nx.DiGraph[Box] = nx.DiGraph()
    graph.add_nodes_from(boxes.values())
    for index, node in enumerate(genome.nodes):
        more = ", ".join(f"{name} {_value_text(value)}" for name, value in node.params)
        role = str(get(node.op).signatures[0].role)
        boxes[index] = Box(printable(node.op.replace("_", " ")), role, printable(more))
        graph.add_edges_from((boxes[ref], boxes[index]) for ref in node.inputs)
    output = Box(_output_text(genome.projections), STREAM)
    graph.add_edge(boxes[len(genome.nodes) - 1], output)
    return graph


def assign_layers(graph: nx.DiGraph[Box]) -> dict[Box, int]:
    """Return the layer of each box, 0 at the top, and replace long wires in the graph by bends.

    An operation is one layer below the lowest box that it reads, a stream one above its readers.
    """
    generations = enumerate(nx.topological_generations(graph))
    layers = {box: layer for layer, boxes in generations for box in boxes}
    for box in graph:
        if not graph.pred[box]:
            layers[box] = min(layers[reader] for reader in graph[box]) - 1
    for start, end in list(graph.edges):
        bends = [Box("", BEND) for _ in range(layers[start] + 1, layers[end])]
        graph.remove_edge(start, end)
        nx.add_path(graph, [start, *bends, end])
        layers |= zip(bends, count(layers[start] + 1), strict=False)
    return layers


def place_boxes(graph: nx.DiGraph[Box], layers: Mapping[Box, int]) -> dict[Box, float]:
    """Return the horizontal coordinate of the centre of each box, in pixels.

    Boxes of a layer do not overlap. Layer by layer, the squared lengths of wires are minimised.
    """
    rows = [[*row] for _, row in groupby(sorted(graph, key=layers.__getitem__), layers.get)]
    around = {box: [*nx.all_neighbors(graph, box)] for box in graph}
    x: dict[Box, float] = {}
    for _ in range(ROUNDS):
        for row in rows:
            end = max(x.values(), default=0.0) + GAP  # of a box without a placed neighbour
            wishes = {box: fmean([x[b] for b in around[box] if b in x] or [end]) for box in row}
            row.sort(key=wishes.__getitem__)
            distances = ((a.width + b.width) / 2 + GAP for a, b in pairwise(row))
            starts = [*accumulate(distances, initial=0.0)]
            free = [wishes[box] - start for box, start in zip(row, starts, strict=True)]
            places = _isotonic(free, [len(around[box]) for box in row])
            x |= {box: place + s for box, place, s in zip(row, places, starts, strict=True)}
    return x


def _isotonic(values: Sequence[float], weights: Sequence[int]) -> list[float]:
    """Return the isotonic regression of values by the max-min formula (Barlow et al. 1972)."""
    number = len(values)
    means = [
        [fmean(values[j:k], weights[j:k]) for k in range(j + 1, number + 1)] for j in range(number)
    ]
    return [max(min(row[i - j :]) for j, row in enumerate(means[: i + 1])) for i in range(number)]


def _wire(x: Mapping[Box, float], layers: Mapping[Box, int], start: Box, end: Box) -> Markup:
    leaves = HEIGHT / 2 if start.role == BEND else HEIGHT
    enters = HEIGHT / 2 if end.role == BEND else 0.0
    y0, y1 = layers[start] * LAYER + MARGIN + leaves, layers[end] * LAYER + MARGIN + enters
    return _WIRE.format(x0=x[start], y0=y0, y=(y0 + y1) / 2, x1=x[end], y1=y1)


def _box(box: Box, x: float, layer: int) -> Markup:
    top, is_stream = layer * LAYER + MARGIN, box.role == STREAM
    return _BOX.format(
        box=box,
        left=x - box.width / 2,
        top=top,
        height=HEIGHT,
        radius=HEIGHT / 2 if is_stream else 6,
        colour=COLOURS.get(box.role, NO_ROLE),
        opacity=0.35 if is_stream else 1,
        x=x,
        middle=top + (17 if box.more else 24),
        details=_DETAILS.format(box.more, x=x, y=top + 31) if box.more else "",
    )
