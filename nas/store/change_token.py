"""Whether a run has changed, told from sizes and times of its files: no database is opened."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from nas.store import lock
from nas.store.run import DATABASE_FILE

if TYPE_CHECKING:
    from pathlib import Path

# A record goes to the log first, and from there to the file.
FILES: Final = (DATABASE_FILE, f"{DATABASE_FILE}-wal")


def change_token(folder: Path) -> str:
    """A short text that is another one after each record, and when the writer comes or goes.

    Take it before reading: what is recorded in between is then read, and looked for once more.
    """
    found: list[object] = [lock.is_held(folder)]
    for name in FILES:
        try:
            about = (folder / name).stat()
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((about.st_ino, about.st_size, about.st_mtime_ns))
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]
