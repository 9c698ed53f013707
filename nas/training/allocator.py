"""What becomes of the memory that tensors free: a training frees and takes the same again.

The C library gives large blocks back to the system at once, and gets them again page by page:
up to a fifth of a training's processor time. Told to, it keeps them for the next tensor, as torch
itself does on a GPU. Only glibc can be told; elsewhere nothing changes.
"""

from __future__ import annotations

import ctypes
import resource
from functools import cache
from pathlib import Path
from typing import Any, Final

# malloc.h
M_TRIM_THRESHOLD: Final = -1
M_MMAP_MAX: Final = -4
NEVER: Final = 2**31 - 1
MOST_KEPT: Final = 2**31
"""A process larger than this, in bytes, gives back what it keeps before its next training."""


def keep_freed_memory() -> None:
    """From now on this process keeps what tensors free; what it kept too much of, it gives back."""
    library = _told()
    if library is not None and _resident_bytes() > MOST_KEPT:
        library.malloc_trim(0)


@cache
def _told() -> Any:
    """The C library, told so; None where it cannot be."""
    try:
        library = ctypes.CDLL(None)
        library.malloc_trim.argtypes = [ctypes.c_size_t]
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, NEVER)
    except (AttributeError, OSError, TypeError):
        return None
    return library


def _resident_bytes() -> int:
    """What this process holds of the machine's memory; 0 where the system does not say."""
    try:
        _, pages, *_ = Path("/proc/self/statm").read_text(encoding="ascii").split()
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()
