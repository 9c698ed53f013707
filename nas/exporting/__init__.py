"""Export: a mechanism as a file to drop into a model."""

from nas.export.module import Origin, check_target, export_module, write_module

__all__ = ["Origin", "check_target", "export_module", "write_module"]
