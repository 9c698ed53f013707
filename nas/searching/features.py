"""A genome as numbers by name, for a model of its quality: what it is made of and what it costs.

Operations, parameters, edges (what is read where), projections, visibility and placement are
counted; costs enter as logarithms. On 240 recorded trainings finer descriptions of the graph
(paths, Weisfeiler-Lehman labels) predicted no better.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nas.genome import Genome


def features(genome: Genome, costs: Mapping[str, float]) -> dict[str, float]:
    """What a model knows of a genome in normal form, by name; a name that is missing is 0.

    Args:
        costs: by name, none negative.
    """
    names = [node.op for node in genome.nodes]
    found: Counter[str] = Counter(names)
    for node in genome.nodes:
        found.update(f"{node.op}.{name}={value}" for name, value in node.params)
        for slot, ref in enumerate(node.inputs):
            source = ref if isinstance(ref, str) else names[ref]
            found[f"{source} > {node.op}.{slot}"] += 1
    around = {**asdict(genome.projections), **asdict(genome.visibility)}
    found.update(f"{name}={value}" for name, value in around.items())
    found[f"placement={genome.placement}"] += 1
    logs = {f"log {name}": math.log1p(value) for name, value in costs.items()}
    return {**found, **logs}
