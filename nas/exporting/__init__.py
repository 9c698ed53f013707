"""Export: a mechanism as a file or folder to take away, in the formats that others read."""

from nas.exporting.formats import (
    EXPORTS,
    SAID,
    ExportFormat,
    check_target,
    checked,
    write_export,
)
from nas.exporting.module import export_module
from nas.exporting.subject import MASKS, SEED, Origin, Subject
from nas.exporting.weights import export_weights, read_weights

__all__ = [
    "EXPORTS",
    "MASKS",
    "SAID",
    "SEED",
    "ExportFormat",
    "Origin",
    "Subject",
    "check_target",
    "checked",
    "export_module",
    "export_weights",
    "read_weights",
    "write_export",
]
