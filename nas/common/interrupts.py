"""Context managers that record interrupts by signals, and that pause garbage collection."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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
