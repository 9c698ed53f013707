"""An export format: the graph of a mechanism in Graphviz's language."""

from __future__ import annotations

from nas.exporting import EXPORTS, ExportFormat, ExportRequest
from nas.genome.canonical import digest


@EXPORTS.register("dot")
@ExportFormat
def graphviz(request: ExportRequest) -> str:
    """A vertex for each stream and operation, an edge for each operand."""
    nodes = [*enumerate(request.genome.nodes)]
    vertices = [f'  "{index}" [label="{node.op}"];' for index, node in nodes]
    edges = [f'  "{ref}" -> "{index}";' for index, node in nodes for ref in node.inputs]
    return "\n".join([f'digraph "{digest(request.genome)}" {{', *vertices, *edges, "}", ""])
