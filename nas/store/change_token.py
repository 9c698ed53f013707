"""Detect changes of a run by sizes and times of its files, without opening its database."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from nas.store import lock
from nas.store.run import DATABASE_FILE

# SQLite writes a record to the log first, and later to the file.
FILES: Final = (DATABASE_FILE, f"{DATABASE_FILE}-wal")


def change_token(folder: Path) -> str:
    """A digest that changes with each record, and when a writer starts or ends.

    Compute it before reading the run, so that records written meanwhile change it.
    """
    state: list[object] = [lock.is_held(folder)]
    for name in FILES:
        try:
            info = (folder / name).stat()
        except FileNotFoundError:
            state.append(None)
        else:
            state.append((info.st_ino, info.st_size, info.st_mtime_ns))
    return hashlib.sha256(repr(state).encode()).hexdigest()[:16]
