"""Isolate a process from a candidate: restore torch's global state, and bound what it prints."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TextIO

import torch

from nas.common.text import printable

MAX_PRINTED: Final = 4000  # characters that a candidate may print during its training

SETTINGS: Final[dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]] = {
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "whether there are gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
    "the precision of products": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "attention by cuDNN": (
        torch.backends.cuda.cudnn_sdp_enabled,
        torch.backends.cuda.enable_cudnn_sdp,
    ),
}
"""torch's settings for the whole process: functions that get and set each of them."""


@contextlib.contextmanager
def isolated_torch_state() -> Iterator[list[str]]:
    """Run a block with one thread and with gradients, and restore torch's settings on exit.

    With one thread, workers do not compete for cores and the order of sums is fixed. Attention by
    cuDNN, which torch prefers in bfloat16 on GPUs from the H100 on, is off: it plans each new shape
    for half a second, and some gradients of masked attention are not finite (pytorch #196678). If
    settings were not restored, a primitive that disables gradients would change every later
    candidate. `nas.tasks.layers.seeded` restores random generators.

    Yields:
        An empty list. On exit, the names of all settings that the block changed are added to it.
    """
    before = _settings()
    changed: list[str] = []
    torch.set_num_threads(1)
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            inside = _settings()
            try:
                yield changed
            finally:
                changed += [name for name, value in _settings().items() if value != inside[name]]
    finally:
        for name, (_, set_) in SETTINGS.items():
            set_(before[name])


def _settings() -> dict[str, Any]:
    return {name: get() for name, (get, _) in SETTINGS.items()}


@contextlib.contextmanager
def bounded_output() -> Iterator[None]:
    """Redirect what a block prints to standard error, up to ``MAX_PRINTED`` characters."""
    stream = _BoundedStream(sys.stderr)
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield


class _BoundedStream(io.TextIOBase):
    """Writes the first ``MAX_PRINTED`` characters to another stream, and drops further ones."""

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
