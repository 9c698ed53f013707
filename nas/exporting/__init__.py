"""Export: a mechanism as a file to drop into a model, and its trained weights beside it."""

from nas.exporting.formats import EXPORTS, ExportFormat, check_target, write_export
from nas.exporting.module import Origin, export_module, export_weights, genome_of_export

__all__ = [
    "EXPORTS",
    "ExportFormat",
    "Origin",
    "check_target",
    "export_module",
    "export_weights",
    "genome_of_export",
    "write_export",
]
