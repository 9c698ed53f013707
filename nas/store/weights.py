"""Trained weights of mechanisms of a front: ``weights/<key>.safetensors`` in the folder of a run.

A file is written before its training is recorded, so that every recorded mechanism of the front has
weights. When a run ends, the files of mechanisms that are unlikely to be in the front are removed.
A worker serialises the weights; this module does not read them.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from nas.common.errors import RunError
from nas.common.reading import open_regular
from nas.evaluation.trial import Evaluation
from nas.store.files import run_argument, write_whole

WEIGHTS: Final = "weights"
SUFFIX: Final = ".safetensors"
MAX_BYTES: Final = 2**30
MAX_HEADER_BYTES: Final = 2**22  # JSON, 100 bytes for each tensor
_TEMPORARY: Final = re.compile(rf"\.[0-9A-Za-z_-]{{1,64}}{re.escape(SUFFIX)}\.[0-9a-f]{{32}}")


def weights_path(folder: Path, key: str) -> Path:
    """Return the path of a mechanism's weights. The file exists if the mechanism is in the front.

    Raises:
        RunError: the key is not valid, because the database is damaged; or the folder of weights is
            a link, which may lead out of the run.
    """
    if not re.fullmatch(r"[0-9A-Za-z_-]{1,64}", key):
        raise RunError(f"{folder}: {key!r} is no key of a candidate; the database is damaged.")
    if (folder / WEIGHTS).is_symlink():
        raise RunError(
            f"{folder / WEIGHTS}: is a link, which can lead out of the run; expected the folder."
        )
    return folder / WEIGHTS / f"{key}{SUFFIX}"


def check_weights_file(path: Path) -> None:
    """Check the type and the sizes of a file of weights before safetensors reads it.

    Raises:
        OSError: the file is missing, not a regular file, or larger than ``MAX_BYTES``, or its
            header is larger than ``MAX_HEADER_BYTES``; ``strerror`` says which.
    """
    with open_regular(path, MAX_BYTES, follow=False) as file:
        header = int.from_bytes(file.read(8), "little")
    if header > MAX_HEADER_BYTES:
        raise OSError(errno.EFBIG, f"its header has {header:,} bytes")


def keep_weights(folder: Path, key: str, evaluation: Evaluation) -> None:
    """Write the weights of a training, if it succeeded and its result contains weights.

    Raises:
        RunError: the file cannot be written.
    """
    if evaluation.weights is None or not evaluation.is_ok:
        return
    path = weights_path(folder, key)
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, evaluation.weights)
    except OSError as error:
        raise RunError(
            f"{path}: cannot be written ({error.strerror}). Check that you may write to the "
            "folder and that its disk is not full; "
            f"`nas resume {run_argument(folder)}` goes on."
        ) from error


def remove_weights(folder: Path, keys: Iterable[str]) -> None:
    """Remove the weights of some mechanisms and temporary files of killed processes.

    Other files in the folder of weights belong to the user and stay.
    """
    if (folder / WEIGHTS).is_symlink():
        return
    temporary = (p for p in (folder / WEIGHTS).glob(".*") if _TEMPORARY.fullmatch(p.name))
    for path in (*temporary, *(weights_path(folder, key) for key in keys)):
        with contextlib.suppress(OSError):
            path.unlink()
