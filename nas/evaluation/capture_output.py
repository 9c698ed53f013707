"""Bound what a candidate prints while it trains, and keep it off standard output."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import TYPE_CHECKING, Final, TextIO

from nas.common.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PRINTED: Final = 4000


@contextlib.contextmanager
def bounded_output() -> Iterator[None]:
    """Send what Python code prints inside to standard error, at most ``MAX_PRINTED`` characters."""
    stream = _BoundedStream(sys.stderr)
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield


class _BoundedStream(io.TextIOBase):
    """Passes on the first ``MAX_PRINTED`` characters."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._left = stream, MAX_PRINTED

    def write(self, text: str) -> int:
        if self._left > 0:
            self._stream.write(printable(text[: self._left]))
            if len(text) > self._left:
                self._stream.write(" ... (further output of this candidate is left out)\n")
            self._left -= len(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()
