"""Export: write a mechanism as a file that does not need nas, in the format of its suffix."""

from nas.exporting.formats import EXPORTS, TOLERANCE, ExportFormat, ExportRequest, export_file
from nas.exporting.python_file import weights_file

__all__ = ["EXPORTS", "TOLERANCE", "ExportFormat", "ExportRequest", "export_file", "weights_file"]
