"""A genome's graph as a picture: streams on top, the output at the bottom, colours by role.

A stream is an input of the graph: queries, keys or values. ``placed`` computes the positions of the
boxes; ``graph_svg`` draws them. The report page draws a mechanism when it is selected, so one of
its scripts (page/scripts/graph.js) has the same layout.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise, repeat
from pathlib import Path
from statistics import fmean
from typing import Final

from markupsafe import Markup

from nas.common.text import printable
from nas.genome import STREAMS, Genome, ParamValue, Ref
from nas.genome.primitives import get
from nas.report.charts import check_picture, write_svg
from nas.report.page.rendering import render

GAP, LAYER, HEIGHT, LETTER, TOP, MARGIN = 22.0, 66.0, 38.0, 7.1, 8.0, 8.0
ROUNDS: Final = 120
# Colours of roles, for light and dark backgrounds; text and wires have the surrounding text colour.
COLOURS: Final = {
    "score": "#3f7ddb",
    "normalize": "#d9700f",
    "aggregate": "#1f9d6b",
    "adjust": "#b08d0e",
    "position": "#1797a6",
    "gate": "#d6457a",
    "transform": "#9a5cc6",
}
NO_ROLE: Final = "#7d8590"
FONT: Final = "'Segoe UI', 'Helvetica Neue', Arial, sans-serif"


@dataclass(eq=False)
class Box:
    """A box of the picture of a graph: a stream, a node, the output, or a bend of a long wire.

    A stream is an input of the graph. A wire is a line from a box to a box that reads its value. A
    bend is an invisible box that leads a wire between the other boxes of a layer. Coordinates are
    pixels; y increases downwards.

    Attributes:
        words: text in the box.
        kind: role of the node's operation, or "stream" (also for the output), or "bend".
        layer: number of the layer, 0 at the top.
        width: width of the box in pixels.
        more: second line of text: the node's parameters.
        reads: boxes whose values the box reads.
        x: horizontal coordinate of the centre.
    """

    words: str
    kind: str
    layer: int
    width: float
    more: str = ""
    reads: list[Box] = field(default_factory=list)
    x: float = 0.0

    @property
    def y(self) -> float:
        """The vertical coordinate of the box's upper edge."""
        return self.layer * LAYER + TOP

    @property
    def colour(self) -> str:
        """The colour for the role of the box's operation."""
        return COLOURS.get(self.kind, NO_ROLE)


def write_graph(genome: Genome, path: Path) -> None:
    """Draw a genome's graph into a file, in the format of the file's ending.

    Raises:
        RunError: the name of the file does not end in .svg, .png or .pdf, or it cannot be written.
    """
    check_picture(path)
    write_svg(graph_svg(genome), path)


def graph_svg(genome: Genome, about: str = "Graph of the mechanism") -> Markup:
    """Return the picture of a genome's graph as an SVG element, readable on any background."""
    boxes = placed(genome)
    left, right, bottom = extent(boxes)
    return render(
        "graph.html",
        about=about,
        boxes=boxes,
        wire=wire,
        font=FONT,
        height=HEIGHT,
        left=left,
        right=right,
        bottom=bottom,
    ).strip()


def extent(boxes: Iterable[Box]) -> tuple[float, float, float]:
    """Return the left edge, right edge and height of the picture of boxes, in pixels."""
    boxes = list(boxes)
    left = min(box.x - box.width / 2 for box in boxes) - MARGIN
    right = max(box.x + box.width / 2 for box in boxes) + MARGIN
    return left, right, LAYER * (1 + max(box.layer for box in boxes))


def wire(start: Box, end: Box) -> tuple[float, float]:
    """Return the vertical coordinates of the two ends of a wire.

    A wire starts at the lower edge of a box and ends at the upper edge of a box. At a bend it
    starts or ends in the middle of the bend's box.
    """
    leaves = start.y + (HEIGHT / 2 if start.kind == "bend" else HEIGHT)
    return leaves, end.y + (HEIGHT / 2 if end.kind == "bend" else 0.0)


def placed(genome: Genome) -> list[Box]:
    """Return all boxes of the picture of a genome's graph, with positions, sorted by layer."""
    return _arranged(_bent(_laid_out(genome)))


def _laid_out(genome: Genome) -> list[Box]:
    """Return the boxes of a genome with their layers, but without horizontal positions.

    The box of an operation is one layer below the lowest box that it reads. The box of an input
    (such as q, k or v) is one layer above the highest box that reads it.
    """
    projections = genome.projections
    by_ref: dict[Ref, Box] = {}
    for stream in STREAMS:
        if any(stream in node.inputs for node in genome.nodes):
            source = f"x·W_{stream.upper()}" if projections.has_projection(stream) else "x"
            by_ref[stream] = _box(f"{stream} = {source}", "stream", 0)
    for index, node in enumerate(genome.nodes):
        reads = [by_ref[ref] for ref in dict.fromkeys(node.inputs)]
        more = ", ".join(f"{name} {_value(value)}" for name, value in node.params)
        layer = 1 + max((box.layer for box in reads), default=0)
        role = str(get(node.op).signatures[0].role)
        by_ref[index] = _box(node.op.replace("_", " "), role, layer, more, reads)
    merged = "sum of heads" if projections.merge == "sum" else "heads side by side"
    last = [by_ref[len(genome.nodes) - 1]] if genome.nodes else []
    words = f"W_O({merged})" if projections.has_wo else merged
    out = _box(words, "stream", 1 + max((box.layer for box in last), default=0), "", last)
    boxes = [*by_ref.values(), out]
    for box in boxes:  # a stream stands one layer above its first reader
        readers = [other.layer for other in boxes if box in other.reads]
        if not box.reads and readers:
            box.layer = min(readers) - 1
    return boxes


def _box(words: str, kind: str, layer: int, more: str = "", reads: list[Box] | None = None) -> Box:
    words, more = printable(words), printable(more)
    width = max(len(words), 0.86 * len(more)) * LETTER + 26
    return Box(words, kind, layer, width, more, reads or [])


def _value(value: ParamValue) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value).strip('"')


def _bent(boxes: list[Box]) -> list[Box]:
    """Return the boxes and a new bend for each layer that a wire crosses, sorted by layer.

    Bends keep wires from running behind boxes. The field ``reads`` of the boxes is changed.
    """
    bends: dict[tuple[Box, Box, int], Box] = {}
    for box in boxes:
        for place, last in enumerate(box.reads):
            start = last
            for layer in range(start.layer + 1, box.layer):
                last = bends[start, box, layer] = Box("", "bend", layer, 6.0, reads=[last])
            box.reads[place] = last
    return sorted([*boxes, *bends.values()], key=lambda box: box.layer)


def _arranged(boxes: list[Box]) -> list[Box]:
    """Set the horizontal positions of the boxes close to connected boxes; return the boxes."""
    around: dict[Box, list[Box]] = {box: [] for box in boxes}
    layers: defaultdict[int, list[Box]] = defaultdict(list)
    for box in boxes:
        layers[box.layer].append(box)
        for other in box.reads:
            around[box].append(other)
            around[other].append(box)
    taken = 0.0
    for layer in layers.values():
        for box in layer:
            if box.reads:
                box.x = fmean(other.x for other in box.reads)
            else:
                box.x = taken + box.width / 2 + GAP
                taken += box.width + GAP
        _apart(layer)  # before the next layer, whose order depends on this one's
    for _ in range(ROUNDS):
        for box in boxes:
            if around[box]:
                box.x = 0.5 * box.x + 0.5 * fmean(other.x for other in around[box])
        for layer in layers.values():
            _apart(layer)
    return boxes


def _apart(layer: list[Box]) -> None:
    """Move the boxes of a layer apart, with the least sum of squared moves in their order.

    Without their distances the boxes have places that may not decrease: isotonic regression, here
    by pooling of adjacent violators.
    """
    layer.sort(key=lambda box: box.x)
    distances = ((left.width + right.width) / 2 + GAP for left, right in pairwise(layer))
    starts = list(accumulate(distances, initial=0.0))
    groups: list[tuple[float, int]] = []  # mean place and number of boxes
    for box, start in zip(layer, starts, strict=True):
        place, count = box.x - start, 1
        while groups and groups[-1][0] > place:
            before, more = groups.pop()
            place, count = (place * count + before * more) / (count + more), count + more
        groups.append((place, count))
    places = chain.from_iterable(repeat(place, count) for place, count in groups)
    for box, start, place in zip(layer, starts, places, strict=True):
        box.x = start + place
