"""Names in a folder of data: what is refused before anything is read."""

from __future__ import annotations

import os
from pathlib import Path

from nas.common.errors import DataError


def check_name(folder: Path, name: str) -> None:
    """Refuse a name that could do harm where it is shown, or that leads elsewhere.

    Args:
        folder: it may lie beside others, and links among these are no matter.

    Raises:
        DataError: it is not printable, or a link out of the data.
    """
    path = folder / name
    if not name.isprintable():  # bytes that are not UTF-8, or what moves a terminal's cursor
        raise DataError(f"{folder}: {name!a} is no printable name; rename it.")
    if path.is_symlink() and not _real(path).is_relative_to(_real(folder).parent):
        raise DataError(
            f"{path}: is a link that leads out of the data; copy what it points to, or remove it."
        )


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises where links go in a circle
