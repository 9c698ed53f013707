"""The weights of front members, one file each: ``weights/<key>.safetensors`` in the run's folder.

A file is written before the evaluation that it belongs to is recorded, so that a recorded member
does not lack its weights; files of others are removed when the run ends. The content is the
worker's and is not read here.
"""

from __future__ import annotations

import contextlib
import errno
import re
from typing import TYPE_CHECKING, Final

from nas.common.errors import RunError
from nas.store.files import run_argument, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from nas.evaluation.trial import Evaluation

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


class FrontWeights:
    """The files in a run's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, key: str, evaluation: Evaluation) -> None:
        """Write what a training brought along; to be called before it is recorded.

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

    def tidy(self, wanted: Iterable[str]) -> None:
        """Remove the files of all keys but these."""
        names, folder = {f"{key}{SUFFIX}" for key in wanted}, self._folder / WEIGHTS
        for path in folder.glob("*"):
            if path.name not in names and not folder.is_symlink():
                with contextlib.suppress(OSError):
                    path.unlink()
