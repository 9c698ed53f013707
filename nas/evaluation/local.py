"""Train in this process, one candidate after the other: `--backend local`.

Nothing to start and easy to debug. What it cannot do is outlive a candidate that takes its process
down, or end one that hangs inside a single operation; `ray_backend` can.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from nas.common.interrupts import heard_interrupts
from nas.evaluation.trainer import calibrate_for, train_candidate, train_guarded
from nas.evaluation.trial import log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nas.evaluation.trainer import Train
    from nas.evaluation.trial import Evaluation, Incident, Trial
    from nas.tasks import Data, Task


class LocalEvaluator:
    """An `Evaluator` of one worker, this process. Trials are trained in order, one a `wait`.

    Args:
        device: the torch device, "cpu" or "cuda".
        time_limit: seconds that one training may take; None for no limit.
        train: the training function.
    """

    workers = 1

    def __init__(
        self,
        task: Task,
        data: Data,
        *,
        device: str = "cpu",
        time_limit: float | None = None,
        train: Train = train_candidate,
    ) -> None:
        self._task, self._data, self._train = task, data, train
        self._device, self._time_limit = device, time_limit
        self._waiting: deque[Trial] = deque()
        self.on_incident: Callable[[Incident], None] = log

    def calibrate(self) -> Mapping[str, Any]:
        """Measure on this process's device."""
        return calibrate_for(self._task, self._device)

    def submit(self, trials: Sequence[Trial]) -> None:
        """Take on more trials; the order of a single worker changes no end, so it stays."""
        self._waiting.extend(trials)

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        """Train the next trial; empty where there is none.

        Raises:
            DeviceError: the device is not there.
            KeyboardInterrupt: a person asked to stop; one that a primitive raises is its fault.
        """
        if not self._waiting:
            return []
        trial = self._waiting.popleft()
        where = self._task, self._data, self._device, self._time_limit
        with heard_interrupts() as asked:
            evaluation = train_guarded(self._train, trial, *where)
        if asked:  # whatever the training made of the exception
            raise KeyboardInterrupt
        return [(trial, evaluation)]

    def close(self) -> None:
        """Forget what waits."""
        self._waiting.clear()
