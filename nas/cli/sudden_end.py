"""A sentence on standard error if a command's process ends without one of its own.

Ray ends the process of a command at once when Ray itself ends on this machine, and so does the
system when memory runs out, or a plug-in that calls ``os._exit``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

SENTENCE: Final = (
    "nas: the process of this command ended without an answer: it was killed, memory ran out, Ray "
    "ended on this machine (`ray stop`), or a plug-in ended it. What was recorded is kept: `nas "
    "resume` continues a search, and the same command continues any other."
)
# A line means that the block has ended; the end of the pipe without a line, that the process has.
WATCH: Final = 'read -r line || printf "%s\\n" "$0" >&2'


@contextmanager
def announced_sudden_end() -> Iterator[None]:
    """Run a block; if this process ends before the block does, a shell prints ``SENTENCE``."""
    try:
        watch = subprocess.Popen(  # noqa: S603 - a fixed command
            ["/bin/sh", "-c", WATCH, SENTENCE],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt must not end it
        )
    except OSError:  # no shell, or no process left
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):
            watch.communicate(b"\n")
