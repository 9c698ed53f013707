"""The last line between one candidate's fault and the run.

A training function answers for itself: divergence, memory, time. What it lets through all the same
(a fault of ours, a plugin's, a library's) is caught here and becomes a failed evaluation of that
one candidate. The evaluators also come here for the failures that no training can report, because
its process is gone or hangs.
"""

import os
import platform
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, Protocol

from nas.errors import DeviceError
from nas.evaluation.record import Evaluation, Job, Reason

if TYPE_CHECKING:
    from nas.evaluation.choices import Choices
    from nas.tasks import ImageData, Task

MAX_ERROR_CHARACTERS: Final = 2000


class Train(Protocol):
    """A training function, `nas.evaluation.trainer.train_candidate` for one.

    Contract: gives an evaluation for every fault of the candidate, keeps `time_limit` seconds as
    well as it can, lets KeyboardInterrupt pass, and gives the same curve for the same job wherever
    it runs. DeviceError says that the device is missing, whoever the candidate is.
    """

    def __call__(
        self,
        job: Job,
        task: "Task",
        data: "ImageData",
        *,
        device: str,
        time_limit: float | None,
    ) -> Evaluation:
        """Train one candidate on one device."""
        ...


def train_guarded(
    train: Train,
    job: Job,
    task: "Task",
    data: "ImageData",
    *,
    device: str,
    time_limit: float | None,
    choices: "Choices | None" = None,
) -> Evaluation:
    """Train one candidate; what it raises is its own failure.

    Args:
        choices: what to compute with; None goes by the task and by rules of thumb.

    Raises:
        DeviceError: the device is missing, which is no candidate's fault.
        KeyboardInterrupt: a person wants to stop.
    """
    start = time.monotonic()
    how = nullcontext(task) if choices is None else choices.applied(task)
    try:
        with how as chosen:
            return train(job, chosen, data, device=device, time_limit=time_limit)
    except DeviceError:
        raise
    except Exception as error:  # the contract of this room: a candidate never stops the run
        reason: Reason = "out_of_memory" if isinstance(error, MemoryError) else "error"
        text = f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - start
        return failed(job, task.budget, reason, text, worker=worker_name(), wall_seconds=seconds)


def failed(
    job: Job, budget: str, reason: Reason, text: str, *, worker: str, wall_seconds: float
) -> Evaluation:
    """Record a failure of which only the reason, the worker and the time are known."""
    return Evaluation(
        status="failed",
        reason=reason,
        objectives={},
        curve=(),
        seed=job.seed,
        budget=budget,
        wall_seconds=wall_seconds,
        core_seconds=0.0,
        peak_memory_bytes=0,
        worker=worker,
        error=text[:MAX_ERROR_CHARACTERS],
    )


def worker_name() -> str:
    """Name this process among all machines of a run: host and process id."""
    return f"{platform.node()}:{os.getpid()}"
