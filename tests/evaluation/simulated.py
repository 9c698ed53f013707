"""A pool of simulated workers with given durations and faults; time passes at once."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, get_args

from nas.common.errors import DeviceError
from nas.evaluation.dispatch import Cause, Dispatcher, WorkerLostError
from nas.evaluation.trial import Budget, Evaluation, Trial

BUDGET = Budget(1, 1, "float32")


class SimulatedPool:
    """Workers whose trainings take `work` seconds; a training with a fault takes half of it.

    Args:
        answer: the evaluation of a trial without a fault.
        fault: the fault of the n-th attempt, from 0, of the trial with a key, or of the start of a
            worker, whose key is "start". A fault is "" for none, the cause of a loss, the reason of
            a failed evaluation, "refused", "hangs", or "spent" for a worker's last training.
        start_seconds: time that a worker takes to start; math.inf if there is no room.

    The clock ``now`` and ``busy``, the total time of trainings without a fault, are in seconds.
    """

    def __init__(
        self,
        answer: Callable[[Trial], Evaluation],
        fault: Callable[[str, int], str] = lambda key, attempt: "",
        start_seconds: float = 10.0,
    ) -> None:
        self.now = self.busy = 0.0
        self.start_seconds = start_seconds
        self.started = self.killed = 0
        self.submitted: list[str] = []
        self.alone: list[str] = []
        self._answer, self._fault = answer, fault
        self._attempts: Counter[str] = Counter()
        self._coming: list[tuple[float, int, Any, str]] = []
        self._count = 0

    def start(self, resources: Any) -> tuple[Any, Any]:
        self.started += 1
        return object(), self._expect("start", self.start_seconds, None)

    def submit(self, worker: Any, trial: Trial, *, is_alone: bool = False) -> Any:
        self.submitted.append(trial.key)
        self.alone += [trial.key] if is_alone else []
        return self._expect(trial.key, trial.work, trial)

    def wait(self, timeout: float | None) -> Sequence[Any]:
        """Let time pass until the next answer."""
        if not self._coming or (timeout is not None and self._coming[0][0] > self.now + timeout):
            assert timeout is not None, "the dispatcher waits without end"
            self.now += timeout
            return []
        end, *ref = heapq.heappop(self._coming)
        self.now = max(self.now, end)
        return [tuple(ref)]

    def get(self, ref: Any) -> Any:
        """A name, an evaluation, or a loss."""
        _, trial, fault = ref
        if fault in get_args(Cause):
            raise WorkerLostError(fault, "gone")
        if fault == "refused":
            raise DeviceError("the machine m cannot train: no GPU.")
        if trial is None:
            return "host:1"
        if fault not in ("", "spent"):
            return Evaluation.failure(trial, BUDGET, fault, "broken", "host:1", 0.0), True
        return self._answer(trial), not fault

    def kill(self, worker: Any) -> None:
        self.killed += 1

    def _expect(self, key: str, seconds: float, trial: Trial | None) -> Any:
        fault = self._fault(key, self._attempts[key])
        self._attempts[key] += 1
        self._count += 1
        self.busy += 0.0 if fault or trial is None else seconds
        end = self.now + (seconds / 2 if fault else seconds)
        if fault != "hangs" and end < math.inf:
            heapq.heappush(self._coming, (end, self._count, trial, fault))
        return self._count, trial, fault


def make_dispatcher(pool: SimulatedPool, workers: int) -> Dispatcher:
    """A dispatcher on the pool's clock, without incident reports."""
    options = {"patience": 1800.0, "start_seconds": 300.0}
    budgets = (BUDGET, BUDGET)
    dispatcher = Dispatcher(pool, range(workers), budgets, clock=lambda: pool.now, **options)
    dispatcher.on_incident = lambda _: None
    return dispatcher
