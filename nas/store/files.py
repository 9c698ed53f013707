"""Files that are there whole or not at all, and what a person types for a run's folder."""

from __future__ import annotations

import os
import shlex
import uuid
from pathlib import Path
from typing import Final

RUNS: Final = Path("runs")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name, on the disk, and rename it; made new, it follows no link.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    staging = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}")
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


def typed(folder: Path) -> str:
    """What a person types for a run: its name where it lies in ``runs``, else its path."""
    whole = folder.resolve()
    return shlex.quote(whole.name if whole.parent == RUNS.resolve() else str(folder))
