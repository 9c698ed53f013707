"""Export: write a mechanism as a file or folder in a format that other programs read."""

from nas.exporting.formats import EXPORTS, OPTIONS, ExportFormat, check_target, write_export
from nas.exporting.request import MASKS, SEED, ExportRequest, Provenance
from nas.exporting.weights import read_weights, save_weights

__all__ = [
    "EXPORTS",
    "MASKS",
    "OPTIONS",
    "SEED",
    "ExportFormat",
    "ExportRequest",
    "Provenance",
    "check_target",
    "read_weights",
    "save_weights",
    "write_export",
]
