"""An evaluator that looks trainings up in a table: a search on it takes seconds.

Which of a mechanism's seeds comes first is drawn for each search, so that searches meet different
luck. A search may see ``seen`` of them; the others are its truth.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from nas.common.errors import TableError
from nas.evaluation.trial import log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from nas.evaluation.trial import Evaluation, Incident, Trial
    from nas.searching.tabular.table import Table


class TableEvaluator:
    """An `Evaluator`; trainings take no time, and end as if workers had taken the recorded one.

    Args:
        seed: of the order in which each mechanism's trainings are given.
        seen: how many of them may be asked for.
        workers: simulated; the next training to end is the one that would be.
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
        """Nothing: a table knows no hardware."""
        return {}

    def submit(self, trials: Sequence[Trial]) -> None:
        """Take on more trials; the one with most work waits least."""
        for trial in trials:
            self._num_submitted += 1
            heapq.heappush(self._waiting, (-trial.work, self._num_submitted, trial))
        self._start()

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        """The training that ends next."""
        if not self._running:
            return []
        self.now, _, trial, evaluation = heapq.heappop(self._running)
        self._start()
        return [(trial, evaluation)]

    def close(self) -> None:
        """Nothing is held."""

    def order(self, key: str) -> list[int]:
        """A mechanism's seeds in the order in which this search meets them."""
        rng = np.random.default_rng([self._seed, int(key, 16)])
        return [int(i) for i in rng.permutation(len(self._table.trainings[key]))]

    def truth(self, key: str, metric: str) -> float:
        """The mean of a metric over the trainings that the search cannot see; NaN if one failed."""
        unseen = [self._table.trainings[key][i] for i in self.order(key)[self._seen :]]
        return float(np.mean([one.metrics.get(metric, np.nan) for one in unseen]))

    def _start(self) -> None:
        while self._waiting and len(self._running) < self.workers:
            _, number, trial = heapq.heappop(self._waiting)
            found = self._find(trial)
            self.busy += found.core_seconds
            heapq.heappush(self._running, (self.now + found.core_seconds, number, trial, found))

    def _find(self, trial: Trial) -> Evaluation:
        if trial.key not in self._table.trainings:
            raise TableError(
                f"table {self._table.name} holds no mechanism {trial.key}; expected a search of "
                f"its space {self._table.space.name} under its task {self._table.task.name}."
            )
        if trial.repeat >= self._seen:
            raise TableError(
                f"table {self._table.name}: training {trial.repeat + 1} of {trial.key} was asked "
                f"for; expected at most {self._seen}."
            )
        return self._table.trainings[trial.key][self.order(trial.key)[trial.repeat]]
