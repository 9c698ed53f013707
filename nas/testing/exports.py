"""Promises of every export format: complete files with correct outputs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from nas.exporting import EXPORTS, ExportRequest, Provenance, write_export
from nas.genome.mechanisms import MECHANISMS
from nas.testing.promises import Promise, keep, require


def check_export(name: str) -> None:
    """Check an export format against the promises of its family.

    Raises:
        AssertionError: a promise is broken; the message names it.
        ConfigError: there is no such format.
        ExportError: the format needs packages that are not installed.
    """
    EXPORTS.get(name).check_packages()
    keep(f"the export format {name}", PROMISES, name)


def _request(mechanism: str) -> ExportRequest:
    return ExportRequest(MECHANISMS[mechanism].genome, 16, 4, Provenance(mechanism))


def writes_files(name: str) -> None:
    """A format with a file suffix returns text or bytes; a format without one returns files."""
    export_format = EXPORTS.get(name)
    for mechanism in ("mha", "gqa"):
        content, suffix = export_format.content(_request(mechanism)), export_format.suffix
        is_file = isinstance(content, str | bytes)
        require(is_file == bool(suffix), f"found {type(content).__name__}, suffix {suffix!r}")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"exported{suffix}"
            write_export(content, path)
            require(path.exists(), f"nothing is written for {mechanism}")


def distinguishes_mechanisms(name: str) -> None:
    """The exports of different mechanisms have different contents."""
    first, second = (EXPORTS.get(name).content(_request(m)) for m in ("mha", "gqa"))
    require(first != second, "mha and gqa have the same content")


def computes_the_same(name: str) -> None:
    """In a process without nas, the exported file of a mechanism gives the mechanism's outputs."""
    export_format, request = EXPORTS.get(name), _request("mha")
    export_format.check_content(request, export_format.content(request))


PROMISES: Final[tuple[Promise, ...]] = (writes_files, distinguishes_mechanisms, computes_the_same)
