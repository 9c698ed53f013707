"""An exclusive lock on a file in the run folder, so that a run has one writer at a time.

The kernel releases a POSIX record lock (``fcntl.lockf``) when the process ends for any reason, and
a forked worker does not inherit it. Such locks do not exclude each other within one process, and
closing any handle of the file releases them: hence ``_held``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from nas.common.errors import RunError
from nas.store.files import run_argument

LOCK_FILE: Final = "lock"
_ATTEMPTS: Final = 5  # since `is_held` holds the lock for an instant
_PAUSE_SECONDS: Final = 0.05

_held: set[Path] = set()  # lock files of this process


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a run within a ``with`` block; the lock file has the process and the host.

    RunError is raised if this or another process writes the run, or the folder is not writable.
    """
    path = folder.resolve() / LOCK_FILE
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    if path in _held:
        raise _refusal(folder, holder)
    with contextlib.ExitStack() as stack:
        stack.callback(_held.discard, path)
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            stack.callback(os.close, file)
            if not _try(file):
                raise _refusal(folder, os.pread(file, 400, 0).decode(errors="replace"))
            os.ftruncate(file, 0)
            os.pwrite(file, holder.encode(), 0)  # the time of the file is `last_acquired`
        except OSError as error:
            raise RunError(
                f"{folder}: cannot be locked for writing ({error.strerror}); choose a folder that "
                "you may write to, on a disk that is not full and that knows file locks."
            ) from error
        _held.add(path)
        yield


def is_held(folder: Path) -> bool:
    """Return whether a living process writes the run."""
    path = folder.resolve() / LOCK_FILE
    if path in _held:
        return True
    try:
        file = path.open("rb")
    except OSError:
        return False
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def last_acquired(folder: Path) -> datetime:
    """Return the time at which a process last locked the run; for a copy without lock its own."""
    path = folder / LOCK_FILE
    return datetime.fromtimestamp((path if path.exists() else folder).stat().st_mtime, UTC)


def _try(file: int) -> bool:
    for _ in range(_ATTEMPTS):
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # POSIX lets a system answer either
            time.sleep(_PAUSE_SECONDS)
        else:
            return True
    return False


def _refusal(folder: Path, holder: str) -> RunError:
    return RunError(
        f"run {folder.name!r} is being written by {holder or 'a process'}; wait until it ends or "
        f"stop it with Ctrl-C, then `nas resume {run_argument(folder)}`. Reading it is possible "
        "meanwhile."
    )
