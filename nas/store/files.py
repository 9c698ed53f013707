"""Files that are there whole or not at all, and what a person types for a run's folder.

What is to be whole is made under a name of its own, and renamed. A process that was killed before
leaves that behind: ``leftovers`` finds it, ``sweep`` removes it; and where a person chose the
folder, whoever makes the same file again does.
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
LEFT_SECONDS: Final = 3600.0  # after which nobody is still at work on it
_LEFT: Final = re.compile(rf"({re.escape(STAGING)}|\..+\.)[0-9a-f]{{32}}")


def staging_for(path: Path) -> Path:
    """Another name to make a file or folder under; what was left unfinished of it is removed."""
    beginning = f".{path.name[:100]}."
    for left in leftovers(path.parent, beginning):
        _remove(left)
    return path.with_name(f"{beginning}{uuid.uuid4().hex}")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name, on the disk, and rename it; made new, it follows no link.

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
    """Write a file that a person named: whole or not at all; parent folders are created.

    Raises:
        RunError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror}).") from error


def leftovers(folder: Path, beginning: str = "") -> list[Path]:
    """What killed processes left unfinished in a folder, an hour ago or earlier.

    Args:
        beginning: of its name, up to what makes it unlike all others; by default any of ours.
    """
    before, name = time.time() - LEFT_SECONDS, re.compile(f"{re.escape(beginning)}[0-9a-f]{{32}}")
    known = name if beginning else _LEFT
    try:
        left = [path for path in sorted(folder.iterdir()) if known.fullmatch(path.name)]
        return [path for path in left if path.lstat().st_mtime < before]
    except OSError:  # another process sweeps it as well
        return []


def sweep(folder: Path, beginning: str = "") -> None:
    """Remove ``leftovers``, as far as this process may."""
    for path in leftovers(folder, beginning):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def run_argument(folder: Path) -> str:
    """What a person types for a run: its name where it lies in ``runs``, else its path."""
    whole = folder.resolve()
    return shlex.quote(whole.name if whole.parent == RUNS.resolve() else str(folder))
