"""Weights of front members, one file each: ``weights/<key>.safetensors`` in the run's folder.

A file is written before its evaluation is recorded, so that every recorded member has its weights;
files of unlikely members are removed when the run ends. The worker serialises the weights; this
module does not read them.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from nas.common.errors import RunError
from nas.evaluation.trial import Evaluation
from nas.store.files import run_argument, write_whole

WEIGHTS: Final = "weights"
SUFFIX: Final = ".safetensors"
_UNFINISHED: Final = re.compile(rf"\.[0-9A-Za-z_-]{{1,64}}{re.escape(SUFFIX)}\.[0-9a-f]{{32}}")


def weights_path(folder: Path, key: str) -> Path:
    """The file of a candidate's weights, which exists if it is in the front.

    Raises:
        RunError: the key is not valid, because the database is damaged.
    """
    if not re.fullmatch(r"[0-9A-Za-z_-]{1,64}", key):
        raise RunError(f"{folder}: {key!r} is no key of a candidate; the database is damaged.")
    return folder / WEIGHTS / f"{key}{SUFFIX}"


class FrontWeights:
    """Writes and removes the weights in a run's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, key: str, evaluation: Evaluation) -> None:
        """Write the weights of a training, before it is recorded.

        Raises:
            RunError: it cannot be written.
        """
        if evaluation.weights is None or not evaluation.is_ok:
            return
        path = weights_path(self._folder, key)
        try:
            path.parent.mkdir(exist_ok=True)
            if path.parent.is_symlink():
                raise OSError(errno.ELOOP, "a link leads out of the run")
            write_whole(path, evaluation.weights)
        except OSError as error:
            raise RunError(
                f"{path}: cannot be written ({error.strerror}). Check that you may write to the "
                "folder and that its disk is not full; "
                f"`nas resume {run_argument(self._folder)}` goes on."
            ) from error

    def remove(self, keys: Iterable[str]) -> None:
        """Remove the files of these mechanisms and of killed writers; a user's files stay."""
        folder = self._folder / WEIGHTS
        if folder.is_symlink():
            return
        unfinished = (path for path in folder.glob(".*") if _UNFINISHED.fullmatch(path.name))
        for path in (*unfinished, *(weights_path(self._folder, key) for key in keys)):
            with contextlib.suppress(OSError):
                path.unlink()
