"""Interrupts of a person or a scheduler, told apart from exceptions that other code raises."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def heard_interrupts() -> Iterator[list[int]]:
    """The signals that ask this process to stop, as they come; each does what it did before.

    An exception does not tell who raised it, and what runs meanwhile may swallow it.
    """
    asked: list[int] = []

    def hear(number: int, frame: object) -> None:
        asked.append(number)
        kept[number](number, frame)

    if threading.current_thread() is not threading.main_thread():  # nor will any come here
        yield asked
        return
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(n))]
    kept: dict[int, Any] = {number: signal.signal(number, hear) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in kept.items():
            if signal.getsignal(number) is hear:  # one may be deaf to the next, once it was heard
                signal.signal(number, handler)
