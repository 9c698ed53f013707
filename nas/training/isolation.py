"""Isolate a process from a candidate: restore torch's global state, and bound what it prints."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TextIO

import torch
from torch import Tensor, nn
from torch.nn import functional

from nas.common.text import printable

MAX_PRINTED: Final = 4000  # characters that a candidate may print during its training

SETTINGS: Final[dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]] = {
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "whether there are gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
    "deterministic algorithms": (
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
    ),
    "anomaly detection": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "the precision of products": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    **{
        f"autocast on {device}": (
            partial(torch.is_autocast_enabled, device),
            partial(torch.set_autocast_enabled, device),
        )
        for device in ("cpu", "cuda")
    },
    "attention by cuDNN": (
        torch.backends.cuda.cudnn_sdp_enabled,
        torch.backends.cuda.enable_cudnn_sdp,
    ),
    "oneDNN": (
        lambda: torch.backends.mkldnn.enabled,
        lambda is_on: torch.backends.mkldnn.set_flags(is_on),  # type: ignore[no-untyped-call]
    ),
    # None undoes set_default_device, which only candidates may have called.
    "the default device": (torch.get_default_device, lambda _: torch.set_default_device(None)),
}
"""torch's settings for the whole process: functions that get and set each of them."""

PATCHABLE: Final[tuple[Any, ...]] = (
    *(functional, Tensor),
    *(nn.Module, nn.Linear, nn.LayerNorm, nn.Embedding, nn.Conv1d, nn.Parameter),
)
"""Modules and classes of torch whose functions a model calls; a candidate may have replaced one."""


def settings() -> dict[str, Any]:
    """Return the current values of the torch settings in ``SETTINGS``, by their names there."""
    return {name: get() for name, (get, _) in SETTINGS.items()}


def _functions() -> list[dict[str, Any]]:
    return [{k: v for k, v in vars(owner).items() if callable(v)} for owner in PATCHABLE]


def _restored(before: list[dict[str, Any]]) -> list[str]:
    """Put back the functions of torch in ``before`` that were replaced; return their names."""
    names = []
    for owner, old, now in zip(PATCHABLE, before, _functions(), strict=True):
        for name in [k for k in old | now if old.get(k) is not now.get(k)]:
            if name in old:
                setattr(owner, name, old[name])
            else:  # it may hide an inherited function
                delattr(owner, name)
            names.append(f"{owner.__name__}.{name}")
    return names


@contextlib.contextmanager
def isolated_torch_state() -> Iterator[list[str]]:
    """Run a block with one thread and with gradients, and restore torch's state on exit.

    With one thread, workers do not compete for cores and the order of sums is fixed. Attention by
    cuDNN, which torch prefers in bfloat16 on GPUs from the H100 on, is off: it plans each new shape
    for half a second, and some gradients of masked attention are not finite (pytorch #196678). If
    settings and functions of torch were not restored, a primitive that disables gradients or
    replaces ``softmax`` would change every later candidate. `nas.tasks.layers.seeded` restores
    random generators.

    Yields:
        An empty list. On exit, the names of all settings and functions of torch that the block
        changed are added to it.
    """
    before = settings()
    functions = _functions()
    changed: list[str] = []
    torch.set_num_threads(1)
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            inside = settings()
            try:
                yield changed
            finally:
                changed += _restored(functions)
                changed += [name for name, value in settings().items() if value != inside[name]]
    finally:
        for name, (get, set_) in SETTINGS.items():
            if get() != before[name]:
                set_(before[name])


@contextlib.contextmanager
def bounded_output() -> Iterator[None]:
    """Redirect what a block prints to standard error, up to ``MAX_PRINTED`` characters.

    If the block closes standard output or standard error, they are open again afterwards.
    """
    stream = _BoundedStream(sys.stderr)
    kept = {}
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # it was closed before
            kept[descriptor] = os.dup(descriptor)
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            yield
    finally:
        for descriptor, copy in kept.items():
            os.dup2(copy, descriptor)
            os.close(copy)


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
