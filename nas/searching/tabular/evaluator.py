"""An evaluator that returns recorded trainings of a table, so that a search takes seconds.

The trainings of each mechanism are put in a random order for each search, so that the noise differs
between searches. A search may use the first ``seen`` trainings. The mean of the others counts as
the true score.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nas.common.errors import TableError
from nas.evaluation.trial import Evaluation, Incident, Trial, log
from nas.searching.tabular.table import Table


class TableEvaluator:
    """An ``Evaluator`` that simulates workers. Trainings take their recorded times.

    Args:
        seed: seed of the order of each mechanism's trainings.
        seen: number of trainings of each mechanism that the search may use.
        workers: number of simulated workers.

    Attributes:
        now: simulated time in seconds.
        busy: sum of the processor times of all trainings that have begun, in seconds.
    """

    def __init__(self, table: Table, *, seed: int = 0, seen: int = 2, workers: int = 1) -> None:
        self.workers = workers
        self.on_incident: Callable[[Incident], None] = log
        self.now = 0.0
        self.busy = 0.0
        self._table, self._seed, self._seen = table, seed, seen
        self._waiting: list[tuple[float, int, Trial]] = []
        self._running: list[tuple[float, int, Trial, Evaluation]] = []
        self._num_submitted = 0

    def calibrate(self) -> Mapping[str, Any]:
        """Return an empty mapping, since no hardware is measured."""
        return {}

    def submit(self, trials: Sequence[Trial]) -> None:
        """Queue trials. The waiting trial with the greatest expected ``work`` starts first."""
        for trial in trials:
            self._num_submitted += 1
            heapq.heappush(self._waiting, (-trial.work, self._num_submitted, trial))
        self._start()

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        """Return the trial that ends next with its evaluation; an empty list if none runs."""
        if not self._running:
            return []
        self.now, _, trial, evaluation = heapq.heappop(self._running)
        self._start()
        return [(trial, evaluation)]

    def close(self) -> None:
        """Do nothing."""

    def order(self, key: str) -> list[int]:
        """Return the indices of a mechanism's trainings in the order of this search."""
        rng = np.random.default_rng([self._seed, int(key, 16)])
        return [int(i) for i in rng.permutation(len(self._table.trainings[key]))]

    def truth(self, key: str, metric: str) -> float:
        """Return the mean of a metric over the trainings that the search cannot use.

        The mean is NaN if one of these trainings failed.
        """
        unseen = [self._table.trainings[key][i] for i in self.order(key)[self._seen :]]
        return float(np.mean([training.metrics.get(metric, np.nan) for training in unseen]))

    def _start(self) -> None:
        while self._waiting and len(self._running) < self.workers:
            _, number, trial = heapq.heappop(self._waiting)
            evaluation = self._find(trial)
            self.busy += evaluation.core_seconds
            heapq.heappush(
                self._running, (self.now + evaluation.core_seconds, number, trial, evaluation)
            )

    def _find(self, trial: Trial) -> Evaluation:
        if trial.key not in self._table.trainings:
            raise TableError(
                f"table {self._table.name} holds no mechanism {trial.key}; expected a search of "
                f"its space {self._table.space.name} under its task {self._table.task.name}."
            )
        if trial.repeat >= self._seen:
            raise TableError(
                f"table {self._table.name}: training {trial.repeat + 1} of {trial.key} was "
                f"requested; expected at most {self._seen}."
            )
        return self._table.trainings[trial.key][self.order(trial.key)[trial.repeat]]
