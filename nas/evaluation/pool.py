"""The `Pool` protocol, which the dispatcher uses to start, call and end workers, and its errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from nas.evaluation.trial import Trial

Cause: TypeAlias = Literal["preempted", "node", "memory", "process", "gpu_unusable"]
BLAMELESS: Final[frozenset[Cause]] = frozenset({"preempted", "node", "gpu_unusable"})
"""Causes of a worker's loss for which its trial is not responsible."""


class WorkerLostError(Exception):
    """A worker's process ended without an answer, or cannot train any longer.

    Args:
        cause: "preempted": the cloud took back the machine; "node": the machine is lost; "memory":
            the process was ended to free memory; "process": the process ended for an unknown
            reason; "gpu_unusable": the process can no longer use its GPU.
        text: details of the loss.
    """

    def __init__(self, cause: Cause, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class WorkerRefusedError(Exception):
    """A worker cannot train any candidate on its machine; the text is a sentence.

    Args:
        is_last: whether all machines of the cluster have refused a worker.
    """

    def __init__(self, text: str, *, is_last: bool) -> None:
        super().__init__(text)
        self.is_last = is_last


class Pool(Protocol):
    """Starts, calls and ends workers. A call returns a hashable reference of its future answer."""

    def start(self) -> tuple[Any, Any]:
        """Start a worker; return the worker, and a reference whose answer is the worker's name."""
        ...

    def submit(self, worker: Any, trial: Trial | None) -> Any:
        """Let a free worker train a trial, or calibrate if it is None; return the reference."""
        ...

    def wait(self, timeout: float | None) -> Iterable[Any]:
        """Block until there are answers, at most ``timeout`` s; return their references."""
        ...

    def get(self, ref: Any) -> Any:
        """Return an answer, or raise WorkerLostError, WorkerRefusedError or a NasError."""
        ...

    def kill(self, worker: Any) -> None:
        """End a worker at once; do nothing if it has ended."""
        ...
