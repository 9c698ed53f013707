"""An export format: the graph of a mechanism as a text for Graphviz."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nas.canonical import digest
from nas.exporting import EXPORTS, ExportFormat

if TYPE_CHECKING:
    from nas.genome import Genome


@EXPORTS.register("dot")
@ExportFormat.of(".dot")
def graphviz(genome: Genome, dim: int, heads: int, origin: Any, **options: bool) -> str:
    """One vertex a stream and operation, one edge an operand."""
    graph = genome.graph()
    vertices = [f'  "{name}" [label="{data["op"]}"];' for name, data in graph.nodes(data=True)]
    edges = [f'  "{a}" -> "{b}";' for a, b in graph.edges]
    return "\n".join([f'digraph "{digest(genome)}" {{', *vertices, *edges, "}", ""])
