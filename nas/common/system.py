"""The operating system: files, interrupts by signals, and the name of the processor."""

from __future__ import annotations

import errno
import gc
import os
import platform
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

BFLOAT16_FLAGS: Final = frozenset({"amx_bf16", "avx512_bf16", "bf16"})


def read_limited(path: Path, most: int) -> bytes:
    """Return the content of a file, or raise OSError if it has more than ``most`` bytes."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return content


@contextmanager
def record_interrupts() -> Iterator[list[int]]:
    """Yield a list to which each SIGINT or SIGTERM is added before its handler runs.

    So the list also shows signals whose KeyboardInterrupt the block caught. It stays empty in
    threads other than the main thread, which receive no signals.
    """
    signals: list[int] = []

    def record(number: int, frame: object) -> None:
        signals.append(number)
        handlers[number](number, frame)

    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(n))]
    handlers: dict[int, Any] = {number: signal.signal(number, record) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is record:  # a handler may have replaced itself
                signal.signal(number, handler)


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Disable Python's garbage collection while a block runs."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def processor_name() -> str:
    """Return the processor's model and number of cores, such as "AMD EPYC (2 cores)"."""
    model = _cpuinfo("model name") or platform.processor() or platform.machine() or "unknown"
    return f"{model} ({os.cpu_count()} cores)"


def multiplies_in_bfloat16() -> bool:
    """Return whether the processor has bfloat16 instructions; False if this is unknown."""
    flags = _cpuinfo("flags") or _cpuinfo("Features")  # names on x86 and on Arm
    return not BFLOAT16_FLAGS.isdisjoint(flags.split())


def _cpuinfo(name: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    values = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(values, "")
