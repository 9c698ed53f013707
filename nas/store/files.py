"""Atomic files, and the command-line argument for a run's folder.

A file is written under a temporary name and renamed, so that it is complete or absent. Temporary
files of killed processes are found by ``leftovers`` and removed by ``sweep``, or by the next write
of the same file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import time
import uuid
from pathlib import Path
from typing import Final

from nas.common.errors import RunError

RUNS: Final = Path("runs")
STAGING: Final = ".new-"
STALE_SECONDS: Final = 3600.0  # least age of a temporary file that counts as left behind
_TEMPORARY: Final = re.compile(rf"({re.escape(STAGING)}|\..+\.)[0-9a-f]{{32}}")


def staging_for(path: Path) -> Path:
    """A temporary name for a file or folder; removes earlier leftovers of it."""
    beginning = f".{path.name[:100]}."
    for leftover in leftovers(path.parent, beginning):
        _remove(leftover)
    return path.with_name(f"{beginning}{uuid.uuid4().hex}")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically; a symbolic link at its path is replaced, not followed.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    staging = staging_for(path)
    handle = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        staging.replace(path)
    except BaseException:
        staging.unlink(missing_ok=True)
        raise


def write_file(path: Path, content: bytes) -> None:
    """Write an output file of a command atomically; creates parent folders.

    Raises:
        RunError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror}).") from error


def leftovers(folder: Path, beginning: str = "") -> list[Path]:
    """Temporary files of killed processes in a folder, an hour old or older.

    Args:
        beginning: of the names, up to their random part; by default any that nas uses.
    """
    before, name = time.time() - STALE_SECONDS, re.compile(f"{re.escape(beginning)}[0-9a-f]{{32}}")
    pattern = name if beginning else _TEMPORARY
    try:
        paths = [path for path in sorted(folder.iterdir()) if pattern.fullmatch(path.name)]
        return [path for path in paths if path.lstat().st_mtime < before]
    except OSError:  # another process may remove them too
        return []


def sweep(folder: Path, beginning: str = "") -> None:
    """Remove ``leftovers``; those that cannot be removed stay."""
    for path in leftovers(folder, beginning):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def run_argument(folder: Path) -> str:
    """The argument that names a run on the command line: its name in ``runs``, else its path."""
    path = folder.resolve()
    return shlex.quote(path.name if path.parent == RUNS.resolve() else str(folder))
