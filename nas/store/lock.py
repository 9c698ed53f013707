"""An exclusive lock on a file in the run folder, so that a run has one writer at a time.

The lock is a POSIX record lock (``fcntl.lockf``). The kernel releases it when the process ends for
any reason, and a forked worker does not inherit it. Such locks do not exclude each other within one
process, and closing any handle of the file releases them: hence ``_held``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from nas.common.errors import RunError
from nas.store.files import run_argument

LOCK_FILE: Final = "lock"
# `is_held` holds the lock for an instant, so a writer tries a few times.
ATTEMPTS: Final = 5
PAUSE_SECONDS: Final = 0.05

_held: set[Path] = set()  # lock files of this process


class Lock:
    """A run's lock, which this process holds until ``release`` is called or the process ends."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle = handle
        _held.add(path)

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._path in _held:
            os.close(self._handle)
            _held.discard(self._path)


def acquire(folder: Path) -> Lock:
    """Lock a run, and write the id and the host of this process into the lock file.

    Raises:
        RunError: this or another process writes the run, or the folder is not writable.
    """
    path = folder.resolve() / LOCK_FILE
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    if path in _held:
        raise _refusal(folder, holder)
    try:
        with contextlib.ExitStack() as on_error:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            on_error.callback(os.close, handle)
            if not _try(handle):
                raise _refusal(folder, os.pread(handle, 400, 0).decode(errors="replace"))
            os.ftruncate(handle, 0)
            os.pwrite(handle, holder.encode(), 0)  # the time of the file is `last_acquired`
            on_error.pop_all()
    except OSError as error:
        raise RunError(
            f"{folder}: cannot be locked for writing ({error.strerror}); choose a folder that you "
            "may write to, on a disk that is not full and that knows file locks."
        ) from error
    return Lock(path, handle)


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


def _try(handle: int) -> bool:
    for attempt in range(ATTEMPTS):
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # POSIX lets a system answer either
            time.sleep(PAUSE_SECONDS if attempt < ATTEMPTS - 1 else 0)
        else:
            return True
    return False


def _refusal(folder: Path, holder: str) -> RunError:
    return RunError(
        f"run {folder.name!r} is being written by {holder or 'a process'}; wait until it ends or "
        f"stop it with Ctrl-C, then `nas resume {run_argument(folder)}`. Reading it is possible "
        "meanwhile."
    )
