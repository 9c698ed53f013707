"""Open and read regular files only: opening a pipe blocks, and reading a device never ends."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, most: int | None = None, *, follow: bool = True) -> BinaryIO:
    """Open a regular file of at most ``most`` bytes for reading.

    ``follow`` permits a symbolic link, which can lead out of the folder of a run.

    Raises:
        OSError: the file is missing, larger, or not a regular file; ``strerror`` says which.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "there is no such file") from None
    except ValueError as error:  # a zero byte in the path
        raise OSError(errno.EINVAL, str(error)) from None
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            kind = "a folder" if stat.S_ISDIR(info.st_mode) else "no regular file"
            raise OSError(errno.EINVAL, f"it is {kind}")
        if most is not None and info.st_size > most:
            raise _too_large(info.st_size, most)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path, most: int, *, follow: bool = True) -> bytes:
    """Return the content of a file, see ``open_regular``."""
    with open_regular(path, most, follow=follow) as file:
        content = file.read(most + 1)
    if len(content) > most:  # files in /proc claim a size of zero
        raise _too_large(len(content), most)
    return content


def _too_large(size: int, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it has {size:,} bytes; expected at most {most:,}")
