"""Keep freed memory in the process, since each training frees and allocates the same blocks.

glibc returns large blocks to the system at once and gets them back page by page, which takes up to
a fifth of a training's processor time. These settings make glibc keep them, as torch does on a GPU.
Other C libraries are not configured.
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
MAX_KEPT: Final = 2**31
"""Resident bytes above which a process returns its free memory before the next training."""


def keep_freed_memory() -> None:
    """Keep freed memory in this process from now on; return it if the process has grown large."""
    library = _configured_libc()
    if library is not None and resident_bytes() > MAX_KEPT:
        library.malloc_trim(0)


@cache
def _configured_libc() -> Any:
    """The C library, configured; None if it cannot be."""
    try:
        library = ctypes.CDLL(None)
        library.malloc_trim.argtypes = [ctypes.c_size_t]
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, NEVER)
    except (AttributeError, OSError, TypeError):
        return None
    return library


def resident_bytes() -> int:
    """The resident memory of this process in bytes; 0 if it is unknown."""
    try:
        _, pages, *_ = Path("/proc/self/statm").read_text(encoding="ascii").split()
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()
