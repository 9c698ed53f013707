"""Where workers come from: the `Pool` protocol, and errors for lost and refused workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nas.evaluation.trial import Reason, Trial

Cause: TypeAlias = Literal["preempted", "node", "memory", "process", "gpu_unusable"]
BLAMELESS: Final[frozenset[Cause]] = frozenset({"preempted", "node", "gpu_unusable"})
"""Causes that do not count against the candidate."""


class WorkerLostError(Exception):
    """A worker's process is gone, and its answer with it.

    Args:
        cause: "preempted": its machine was taken back; "node": its machine is gone; "memory": it
            was ended to save its machine's memory; "process": its process ended, nothing more is
            known; "gpu_unusable": it can no longer use its GPU.
        text: details.
    """

    def __init__(self, cause: Cause, text: str) -> None:
        super().__init__(text)
        self.cause = cause

    @property
    def reason(self) -> Reason:
        """The reason of a trial that failed because its workers were lost."""
        return "out_of_memory" if self.cause == "memory" else "worker_lost"


class WorkerRefusedError(Exception):
    """A worker cannot train any candidate; the text is a sentence.

    Args:
        is_last: every machine has been refused.
    """

    def __init__(self, text: str, *, is_last: bool) -> None:
        super().__init__(text)
        self.is_last = is_last


class Pool(Protocol):
    """Starts, feeds and ends workers. Answers are awaited by hashable references."""

    def start(self) -> tuple[Any, Any]:
        """Start a worker; return it and the reference of its name, which comes when it is ready."""
        ...

    def submit(self, worker: Any, trial: Trial | None) -> Any:
        """Have a free worker train, or calibrate (None); return the reference of the answer."""
        ...

    def wait(self, timeout: float | None) -> Iterable[Any]:
        """Block until there is an answer, at most ``timeout`` s; all references since last time."""
        ...

    def get(self, ref: Any) -> Any:
        """An answer; or raise WorkerLostError, WorkerRefusedError or a NasError."""
        ...

    def kill(self, worker: Any) -> None:
        """End a worker at once, even if it is gone already."""
        ...
