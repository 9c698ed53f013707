"""The weights of front members, one file each: ``weights/<key>.safetensors`` in the run's folder.

A file is written before the evaluation that it belongs to is recorded, so that a recorded member
never lacks its weights; files of others are removed when they are known to be none. The content is
the worker's and is not read here.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from nas.errors import RunError
from nas.store.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

WEIGHTS: Final = "weights"
SUFFIX: Final = ".safetensors"


def weights_path(folder: Path, key: str) -> Path:
    """Where a candidate's weights are, if it is in the front.

    Raises:
        RunError: the key is none, as only a damaged database holds.
    """
    if not re.fullmatch(r"[0-9A-Za-z_-]{1,64}", key):
        raise RunError(f"{folder}: {key!r} is no key of a candidate; the database is damaged.")
    return folder / WEIGHTS / f"{key}{SUFFIX}"


def keep_weights(folder: Path, key: str, content: bytes) -> None:
    """Write a candidate's weights; on return they are on the disk.

    Raises:
        RunError: they cannot be written.
    """
    path = weights_path(folder, key)
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise RunError(
            f"{path}: cannot be written ({error.strerror}). Check that you may write to the folder "
            f"and that its disk is not full; `nas resume {folder.name}` goes on."
        ) from error


def drop_weights(folder: Path, keep: Collection[str]) -> None:
    """Remove every file of weights but those of the keys to keep."""
    wanted = {f"{key}{SUFFIX}" for key in keep}
    for path in (folder / WEIGHTS).glob("*"):
        if path.name not in wanted:
            with contextlib.suppress(OSError):
                path.unlink()
