"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


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
