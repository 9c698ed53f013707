"""Genomes, their types and normal form, primitives, and named mechanisms.

This module exports the names of ``nas.genome.genome``; importing it does not load torch.
"""

from nas.genome.genome import (
    FLAGS,
    LABELS,
    MAX_NODES,
    PLACEMENTS,
    STREAMS,
    Genome,
    GlobalTokens,
    HeadLabel,
    MergeLabel,
    ModelSizes,
    Node,
    ParamValue,
    Placement,
    Projections,
    RawLabel,
    Ref,
    Visibility,
    WidthLabel,
    Window,
    head_count,
    key_width,
    layers_with_mechanism,
)

__all__ = [
    "FLAGS",
    "LABELS",
    "MAX_NODES",
    "PLACEMENTS",
    "STREAMS",
    "Genome",
    "GlobalTokens",
    "HeadLabel",
    "MergeLabel",
    "ModelSizes",
    "Node",
    "ParamValue",
    "Placement",
    "Projections",
    "RawLabel",
    "Ref",
    "Visibility",
    "WidthLabel",
    "Window",
    "head_count",
    "key_width",
    "layers_with_mechanism",
]
