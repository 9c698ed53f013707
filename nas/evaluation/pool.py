"""The `Pool` protocol of workers, and errors for lost and refused workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from nas.evaluation.trial import Reason, Trial

Cause: TypeAlias = Literal["preempted", "node", "memory", "process", "gpu_unusable"]
BLAMELESS: Final[frozenset[Cause]] = frozenset({"preempted", "node", "gpu_unusable"})
"""Causes that do not count against the candidate."""


class WorkerLostError(Exception):
    """A worker's process ended without an answer, or cannot train any longer.

    Args:
        cause: "preempted": the cloud took back its machine; "node": its machine is lost;
            "memory": it was ended to free memory; "process": its process ended for an unknown
            reason; "gpu_unusable": it can no longer use its GPU.
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
        is_last: whether every machine has been refused.
    """

    def __init__(self, text: str, *, is_last: bool) -> None:
        super().__init__(text)
        self.is_last = is_last


class Pool(Protocol):
    """Starts, calls and ends workers. A call returns a hashable reference of its answer."""

    def start(self) -> tuple[Any, Any]:
        """Start a worker; return it and a reference, answered with its name when it is ready."""
        ...

    def submit(self, worker: Any, trial: Trial | None) -> Any:
        """Make a free worker train a trial, or calibrate (None); return the answer's reference."""
        ...

    def wait(self, timeout: float | None) -> Iterable[Any]:
        """Block until there are answers, at most ``timeout`` s; return their references."""
        ...

    def get(self, ref: Any) -> Any:
        """Return an answer, or raise WorkerLostError, WorkerRefusedError or a NasError."""
        ...

    def kill(self, worker: Any) -> None:
        """End a worker at once; does nothing if it has ended."""
        ...
