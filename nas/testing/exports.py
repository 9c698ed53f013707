"""What every export format promises: files that are whole, the same each time, and right."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from nas.exporting import EXPORTS, Origin, Subject, checked, write_export
from nas.genome.mechanisms import MECHANISMS
from nas.testing.promises import Promise, keep, require

_NAMES: Final = ("mha", "gqa")


def check_export(name: str) -> None:
    """Hold an export format to its family's promises.

    Raises:
        AssertionError: a promise is broken; a sentence that says which.
        ConfigError: there is no such format.
        ExportError: it needs packages that are not installed.
    """
    EXPORTS.get(name).check_packages()
    keep(f"the export format {name}", PROMISES, name)


def _subjects() -> list[Subject]:
    return [Subject(MECHANISMS[name].genome, 16, 4, Origin(name)) for name in _NAMES]


def writes_files(name: str) -> None:
    """It gives a file's content, or a folder's files by name where it has no suffix."""
    made = EXPORTS.get(name)
    for subject in _subjects():
        content = made(subject)
        require(isinstance(content, str | bytes) == bool(made.suffix), f"{type(content).__name__}")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"exported{made.suffix}"
            write_export(content, path)
            require(path.exists(), "nothing is written")


def writes_other_mechanisms_otherwise(name: str) -> None:
    """Two mechanisms are two contents."""
    one, other = (EXPORTS.get(name)(subject) for subject in _subjects())
    require(one != other, "they are one")


def computes_the_same(name: str) -> None:
    """What can be loaded gives, in a clean process, what the mechanism gives."""
    made = EXPORTS.get(name)
    if made.recording is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        subject = _subjects()[0]
        checked(made, subject, made(subject), Path(folder))


PROMISES: Final[tuple[Promise, ...]] = (
    writes_files,
    writes_other_mechanisms_otherwise,
    computes_the_same,
)
