"""Mechanisms as data: genomes, their types and normal form, primitives, named mechanisms.

This module exports the names of ``nas.genome.genome``, without torch.
"""

from nas.genome.genome import (
    FLAGS,
    LABELS,
    MAX_INPUTS,
    MAX_NODES,
    PLACEMENTS,
    STREAMS,
    Genome,
    ModelSizes,
    Node,
    ParamValue,
    Projections,
    Ref,
    Visibility,
    check_visibility,
    head_count,
    key_width,
    layers_with_mechanism,
)

__all__ = [
    "FLAGS",
    "LABELS",
    "MAX_INPUTS",
    "MAX_NODES",
    "PLACEMENTS",
    "STREAMS",
    "Genome",
    "ModelSizes",
    "Node",
    "ParamValue",
    "Projections",
    "Ref",
    "Visibility",
    "check_visibility",
    "head_count",
    "key_width",
    "layers_with_mechanism",
]
