"""Export: a mechanism as a file to drop into a model."""

from nas.export.module import Origin, export_module, write_module

__all__ = ["Origin", "export_module", "write_module"]
