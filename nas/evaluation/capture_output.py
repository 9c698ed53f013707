"""Redirect a candidate's output to standard error and limit its length."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Final, TextIO

from nas.common.text import printable

MAX_PRINTED: Final = 4000


@contextlib.contextmanager
def bounded_output() -> Iterator[None]:
    """A context that redirects prints to standard error, at most ``MAX_PRINTED`` characters."""
    stream = _BoundedStream(sys.stderr)
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield


class _BoundedStream(io.TextIOBase):
    """Writes the first ``MAX_PRINTED`` characters to another stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._num_left = stream, MAX_PRINTED

    def write(self, text: str) -> int:
        if self._num_left > 0:
            self._stream.write(printable(text[: self._num_left]))
            if len(text) > self._num_left:
                self._stream.write(" ... (further output of this candidate is left out)\n")
            self._num_left -= len(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()
