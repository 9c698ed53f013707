"""An export format: the graph of a mechanism in Graphviz's language."""

from __future__ import annotations

from nas.exporting import EXPORTS, ExportFormat, ExportRequest
from nas.genome.canonical import digest


@EXPORTS.register("dot")
@ExportFormat.of(".dot")
def graphviz(request: ExportRequest) -> str:
    """A vertex for each stream and operation, an edge for each operand."""
    graph = request.genome.graph()
    vertices = [f'  "{name}" [label="{data["op"]}"];' for name, data in graph.nodes(data=True)]
    edges = [f'  "{a}" -> "{b}";' for a, b in graph.edges]
    return "\n".join([f'digraph "{digest(request.genome)}" {{', *vertices, *edges, "}", ""])
