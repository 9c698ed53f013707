"""Files that a person asked for: whole or not at all, in a folder that is made where it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.common.errors import RunError
from nas.store.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path


def write_file(path: Path, content: bytes) -> None:
    """Write a file.

    Raises:
        RunError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror}).") from error
