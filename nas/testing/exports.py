"""Promises of every export format: complete files with correct outputs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from nas.exporting import EXPORTS, ExportRequest, export_file
from nas.genome.mechanisms import MECHANISMS
from nas.testing.promises import Promise, keep, require


def check_export(name: str) -> None:
    """Check an export format against the promises of its family.

    Args:
        name: the suffix of the format's files, without the dot.

    Raises:
        AssertionError: a promise is broken; the message names it.
        ConfigError: there is no such format.
        ExportError: the format needs packages that are not installed.
    """
    EXPORTS[name]
    keep(f"the export format {name}", PROMISES, name)


def _written(name: str, mechanism: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"exported.{name}"
        export_file(ExportRequest(MECHANISMS[mechanism].genome, 16, 4), path)
        return path.read_bytes()


def writes_files_that_compute_the_same(name: str) -> None:
    """A file is written, and its outputs, if it has any, are those of the compiled block."""
    require(bool(_written(name, "mha")), "the file is empty")


def distinguishes_mechanisms(name: str) -> None:
    """The exports of different mechanisms have different contents."""
    is_same = _written(name, "mha") == _written(name, "gqa")
    require(not is_same, "mha and gqa have the same content")


PROMISES: Final[tuple[Promise, ...]] = (
    writes_files_that_compute_the_same,
    distinguishes_mechanisms,
)
