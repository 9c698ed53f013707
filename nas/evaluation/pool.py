"""Where workers come from: what a `Pool` does, and how it says that a worker is lost or no use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nas.evaluation.trial import Reason, Trial

Cause: TypeAlias = Literal["preempted", "node", "memory", "process", "gpu_unusable"]
BLAMELESS: Final[frozenset[Cause]] = frozenset({"preempted", "node", "gpu_unusable"})


class WorkerLostError(Exception):
    """A worker's process is gone, and its answer with it.

    Args:
        cause: what took it: its machine was taken back or is gone, it was ended to save its
            machine's memory, nobody knows more than that the process ended, or it can use its GPU
            no longer.
        text: what is known about it.
    """

    def __init__(self, cause: Cause, text: str) -> None:
        super().__init__(text)
        self.cause = cause

    @property
    def reason(self) -> Reason:
        """Why a trial failed whose workers were lost."""
        return "out_of_memory" if self.cause == "memory" else "worker_lost"


class WorkerRefusedError(Exception):
    """A worker cannot do this work, whatever the candidate; the text is a sentence.

    Args:
        is_last: there is no machine now that has not been refused.
    """

    def __init__(self, text: str, *, is_last: bool) -> None:
        super().__init__(text)
        self.is_last = is_last


class Pool(Protocol):
    """Starts, feeds and ends workers. Answers are awaited by hashable references to them."""

    def start(self) -> tuple[Any, Any]:
        """Start a worker; give it and the reference to its name, which comes when it is ready."""
        ...

    def submit(self, worker: Any, trial: Trial | None) -> Any:
        """Have a free worker train, or measure its speed (None); give the answer's reference."""
        ...

    def wait(self, timeout: float | None) -> Iterable[Any]:
        """Wait until there is an answer, at most `timeout` s; give all since the last call."""
        ...

    def get(self, ref: Any) -> Any:
        """Get an answer; raises WorkerLostError, WorkerRefusedError or a NasError instead."""
        ...

    def kill(self, worker: Any) -> None:
        """End a worker at once, whatever it does; one that is gone already is no error."""
        ...
