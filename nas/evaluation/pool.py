"""The protocol `Pool` for starting, calling and ending worker processes, and its exceptions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from nas.evaluation.trial import Trial

Cause: TypeAlias = Literal["preempted", "node", "memory", "process", "gpu_unusable"]
BLAMELESS: Final[frozenset[Cause]] = frozenset({"preempted", "node", "gpu_unusable"})
"""Causes of a worker's loss for which its trial is not responsible."""


class WorkerLostError(Exception):
    """Raised if a worker's process ended without an answer, or cannot train any longer.

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
    """Raised if a worker cannot train any candidate on its machine.

    Args:
        text: a sentence with the reason, for the user.
        is_last: whether workers have now refused on all machines of the cluster.
    """

    def __init__(self, text: str, *, is_last: bool) -> None:
        super().__init__(text)
        self.is_last = is_last


class Pool(Protocol):
    """A set of worker processes, each of which answers one call at a time.

    A call returns at once with a hashable reference. `wait` returns the references of the calls
    that have been answered, and `get` returns the answer to a reference.
    """

    def start(self) -> tuple[Any, Any]:
        """Start a worker; return it, and a reference with which `get` returns the worker's name."""
        ...

    def submit(self, worker: Any, trial: Trial | None, *, is_alone: bool = False) -> Any:
        """Call a free worker to train ``trial``, or to measure unit times if ``trial`` is None.

        Args:
            is_alone: whether no other trial runs until this one ends, so that it may use all of the
                memory that workers share.

        Returns:
            A reference with which `get` returns the `Evaluation`, or the measured unit times.
        """
        ...

    def wait(self, timeout: float | None) -> Iterable[Any]:
        """Block until a call is answered, and return the references of all newly answered calls.

        Args:
            timeout: longest time in seconds, after which no references are returned; None for no
                limit. A pool may return earlier.
        """
        ...

    def get(self, ref: Any) -> Any:
        """Return the answer to the call whose reference ``ref`` was returned by `wait`.

        Raises:
            WorkerLostError: the worker was lost before it answered.
            WorkerRefusedError: the worker cannot train on its machine.
            NasError: the call raised this error.
        """
        ...

    def kill(self, worker: Any) -> None:
        """End a worker at once; do nothing if it has ended."""
        ...
