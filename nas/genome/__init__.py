"""Genomes, their types and normal form, primitives, and named mechanisms.

This module exports the names of ``nas.genome.genome``, ``options`` and ``placement``; importing it
does not load torch.
"""

from nas.genome.genome import STREAMS, Genome, ModelSizes, Node, ParamValue, Ref
from nas.genome.options import FLAGS, LABELS, Projections, Visibility, head_count, key_width
from nas.genome.placement import ALL, PLACEMENTS, STANDARD, Placement, PlacementField, Rest

__all__ = [
    "ALL",
    "FLAGS",
    "LABELS",
    "PLACEMENTS",
    "STANDARD",
    "STREAMS",
    "Genome",
    "ModelSizes",
    "Node",
    "ParamValue",
    "Placement",
    "PlacementField",
    "Projections",
    "Ref",
    "Rest",
    "Visibility",
    "head_count",
    "key_width",
]
