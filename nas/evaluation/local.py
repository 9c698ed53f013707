"""Train in this process, one candidate after another: `--backend local`.

A candidate that ends its process ends the search, and a candidate that hangs inside an operation
cannot be stopped; `ray_backend` handles both cases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nas.common.system import record_interrupts
from nas.evaluation.trainer import Train, calibrate_for, train_candidate, train_guarded
from nas.evaluation.trial import Evaluation, Incident, Trial, log
from nas.tasks import Data, Task


class LocalEvaluator:
    """An `Evaluator` that trains in this process; ``target``: see `Trial.is_target`."""

    workers = 1

    def __init__(
        self,
        task: Task,
        data: Data,
        *,
        device: str = "cpu",
        time_limit: float | None = None,
        train: Train = train_candidate,
        target: tuple[Task, Data] | None = None,
    ) -> None:
        self._task, self._train = (task, data), train
        self._target = target or self._task
        self._device, self._time_limit = device, time_limit
        self._pending: deque[Trial] = deque()
        self.on_incident: Callable[[Incident], None] = log

    def calibrate(self) -> Mapping[str, Any]:
        """See `Evaluator`."""
        return calibrate_for(self._target[0], self._device)

    def submit(self, trials: Sequence[Trial]) -> None:
        """See `Evaluator`."""
        self._pending.extend(trials)

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        """See `Evaluator`: each call trains the next queued trial.

        A KeyboardInterrupt that the candidate's own code raises is a failure of the candidate.
        """
        if not self._pending:
            return []
        trial = self._pending.popleft()
        task, data = self._target if trial.is_target else self._task
        with record_interrupts() as interrupts:
            evaluation = train_guarded(
                self._train, trial, task, data, self._device, self._time_limit
            )
        if interrupts:  # even if the training swallowed the exception
            raise KeyboardInterrupt
        return [(trial, evaluation)]

    def close(self) -> None:
        """Drop all queued trials."""
        self._pending.clear()
