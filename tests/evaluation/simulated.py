"""A pool of simulated workers with given durations and losses; time passes at once."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from nas.evaluation.dispatch import Dispatcher
from nas.evaluation.pool import WorkerLostError
from nas.evaluation.trial import Budget, Evaluation, Trial


class SimulatedPool:
    """Workers whose trainings take `work` seconds; `now` is their clock.

    `busy` sums the time of finished trainings.

    Args:
        answer: what a trial gives.
        is_lost: whether the n-th trial that is begun, from 0, ends with its node.
        start_seconds: of a worker.
    """

    def __init__(
        self,
        answer: Callable[[Trial], Evaluation],
        is_lost: Callable[[int], bool] = lambda _: False,
        start_seconds: float = 10.0,
    ) -> None:
        self.now = self.busy = 0.0
        self.start_seconds = start_seconds
        self._answer, self._is_lost = answer, is_lost
        self._coming: list[tuple[float, int, Any]] = []
        self._count = self._num_begun = 0

    def start(self) -> tuple[Any, Any]:
        """A worker is ready some seconds later."""
        return object(), self._expect(self.start_seconds, "host:1")

    def submit(self, worker: Any, trial: Trial | None, *, is_alone: bool = False) -> Any:
        """A training ends when its work is done, or its node is lost half-way."""
        assert trial is not None
        lost = self._is_lost(self._num_begun)
        self._num_begun += 1
        self.busy += 0.0 if lost else trial.work
        return self._expect(trial.work * (0.5 if lost else 1.0), None if lost else trial)

    def wait(self, timeout: float | None) -> Iterable[Any]:
        """Let time pass until the next answer."""
        if timeout is not None and self._coming[0][0] > self.now + timeout:
            self.now += timeout
            return []
        self.now, *ref = heapq.heappop(self._coming)
        return [tuple(ref)]

    def get(self, ref: Any) -> Any:
        """A name, an evaluation, or a loss."""
        _, what = ref
        if what is None:
            raise WorkerLostError("node", "its node is gone")
        return self._answer(what) if isinstance(what, Trial) else what

    def kill(self, worker: Any) -> None:
        """Nothing is held."""

    def _expect(self, seconds: float, what: Any) -> Any:
        self._count += 1
        heapq.heappush(self._coming, (self.now + seconds, self._count, what))
        return self._count, what


BUDGET = Budget(1, 1, "float32")


def make_dispatcher(pool: SimulatedPool, workers: int) -> Dispatcher:
    """A dispatcher on the pool's clock, without incident reports."""
    options = {"patience": 1800.0, "start_seconds": 300.0}
    dispatcher = Dispatcher(pool, workers, (BUDGET, BUDGET), clock=lambda: pool.now, **options)
    dispatcher.on_incident = lambda _: None
    return dispatcher
