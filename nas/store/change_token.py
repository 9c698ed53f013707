"""Detect changes of a run by sizes and times of its files, without opening its database."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from nas.store import lock
from nas.store.run import DATABASE_FILE

if TYPE_CHECKING:
    from pathlib import Path

# A record is written to the log first, and later to the file.
FILES: Final = (DATABASE_FILE, f"{DATABASE_FILE}-wal")


def change_token(folder: Path) -> str:
    """A short text that changes with each record, and when a writer starts or ends.

    Take it before reading, so that later records change it again.
    """
    state: list[object] = [lock.is_held(folder)]
    for name in FILES:
        try:
            about = (folder / name).stat()
        except FileNotFoundError:
            state.append(None)
        else:
            state.append((about.st_ino, about.st_size, about.st_mtime_ns))
    return hashlib.sha256(repr(state).encode()).hexdigest()[:16]
