"""Genomes written briefly."""

from __future__ import annotations

from typing import Any

from nas.genome import Genome

# Standard attention after a first node, which is its values.
ATTENTION_TO_FIRST = (("scaled_dot_product", "qk"), ("softmax", [1]), ("weighted_sum", [2, 0]))


def build(*nodes: tuple[Any, ...], placement: Any = "all", **projections: Any) -> Genome:
    """A genome from ("op", "qk") or ("op", [0, "v"], {params}) tuples and projections."""
    graph = [
        {"op": op, "inputs": list(inputs), "params": rest[0] if rest else {}}
        for op, inputs, *rest in nodes
    ]
    data = {"graph_def": graph, "proj_config": projections, "placement": placement}
    return Genome.from_dict(data)
