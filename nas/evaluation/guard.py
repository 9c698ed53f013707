"""The last line between one candidate's fault and the run.

A training function answers for itself: divergence, memory, time. What it lets through all the same
(a fault of ours, a plug-in's, a library's, ``sys.exit`` in a primitive) is caught here and becomes
a failed evaluation of that one candidate. The evaluators also come here for the failures that no
training can report, because its process is gone or hangs.
"""

from __future__ import annotations

import os
import platform
import time
from typing import TYPE_CHECKING, Final, Protocol

from nas.errors import DeviceError
from nas.evaluation.trial import Budget, Evaluation

if TYPE_CHECKING:
    from nas.evaluation.trial import Reason, Trial
    from nas.tasks import Data, Task

MAX_ERROR_CHARACTERS: Final = 2000


class Train(Protocol):
    """A training function, `nas.evaluation.trainer.train_candidate` for one.

    Contract: gives an evaluation for every fault of the candidate, keeps `time_limit` seconds as
    well as it can, and gives the same reports for the same trial wherever it runs. DeviceError says
    that the device is missing, whoever the candidate is.
    """

    def __call__(
        self, trial: Trial, task: Task, data: Data, *, device: str, time_limit: float | None
    ) -> Evaluation:
        """Train one candidate on one device."""
        ...


def train_guarded(
    train: Train,
    trial: Trial,
    task: Task,
    data: Data,
    *,
    device: str,
    time_limit: float | None,
    passes: tuple[type[BaseException], ...] = (DeviceError, KeyboardInterrupt),
) -> Evaluation:
    """Train one candidate; what it raises is its own failure.

    Args:
        passes: what is no candidate's fault, and raised: a device that is missing and, in a
            person's own process, their wish to stop.
    """
    start = time.monotonic()
    try:
        return train(trial, task, data, device=device, time_limit=time_limit)
    except passes:
        raise
    except BaseException as error:  # a candidate never stops the run, sys.exit() included
        reason: Reason = "out_of_memory" if isinstance(error, MemoryError) else "error"
        text = f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - start
        budget = budget_of(trial, task, data)
        return failed(trial, budget, reason, text, worker=worker_name(), wall_seconds=seconds)


def failed(
    trial: Trial, budget: Budget, reason: Reason, text: str, *, worker: str, wall_seconds: float
) -> Evaluation:
    """Record a failure of which only the reason, the worker and the time are known."""
    return Evaluation(
        status="failed",
        reason=reason,
        metrics={},
        reports=(),
        seed=trial.seed,
        budget=budget,
        wall_seconds=wall_seconds,
        core_seconds=0.0,
        peak_memory_bytes=0,
        worker=worker,
        error=text[:MAX_ERROR_CHARACTERS],
    )


def budget_of(trial: Trial, task: Task, data: Data, precision: str | None = None) -> Budget:
    """What a trial is given; the precision as the task names it, unless it is known."""
    epochs = min(trial.epochs or task.epochs, task.epochs)
    return Budget(epochs, task.epoch_size(data), precision or task.precision)


def worker_name() -> str:
    """Name this process among all machines of a run: host and process id."""
    return f"{platform.node()}:{os.getpid()}"
