"""Atomic files, and the command-line argument that names a run.

A file is written under a temporary name and renamed, so that it is complete or absent.
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
STALE_SECONDS: Final = 3600.0  # age from which on no process writes a temporary file any more
_TEMPORARY: Final = re.compile(rf"{re.escape(STAGING)}.*[0-9a-f]{{32}}")


def staging_for(path: Path) -> Path:
    """Return a temporary name for a file or folder, and remove old temporary files beside it."""
    sweep(path.parent)
    return path.with_name(f"{STAGING}{path.name[:100]}.{uuid.uuid4().hex}")


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically, in folders that are created; raise RunError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = staging_for(path)
        try:
            with staging.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            staging.replace(path)
            sync_folder(path.parent)
        finally:
            staging.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror}).") from error


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, so that a renamed file survives a power loss."""
    with contextlib.suppress(OSError):  # some systems synchronise no folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sweep(folder: Path) -> None:
    """Remove the temporary files in a folder that killed processes left an hour ago or earlier."""
    latest = time.time() - STALE_SECONDS
    with contextlib.suppress(OSError):  # another process may remove them too
        for path in folder.iterdir():
            if _TEMPORARY.fullmatch(path.name) and path.lstat().st_mtime < latest:
                shutil.rmtree(path, ignore_errors=True)  # fails for a file
                path.unlink(missing_ok=True)


def run_argument(folder: Path) -> str:
    """Return the shortest command-line argument that names a run, quoted for a shell."""
    path = folder.resolve()
    return shlex.quote(path.name if path.parent == RUNS.resolve() else str(folder))
