"""The recorded trainings of a table, as seen by searches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np

from benchmarks.peers.gp_peer import Candidates, posterior
from benchmarks.peers.problem import Score, bench
from benchmarks.tabular.table import load_table


class Recorded:
    """A table's trainings, in an order drawn from a seed for each mechanism.

    A search sees the first ``seen`` trainings of a mechanism. The ground truth is the mean of its
    other trainings or, if the table is ``smooth``, see ``smooth_truths``.

    Attributes:
        num_unseen: number of trainings of which the ground truth is the mean; infinite if smooth.
    """

    def __init__(self, name: str, seen: int, seed: int) -> None:
        table = _load(name)
        self.bench, self.most_trainings = bench(name), seen
        self.num_unseen = table.repeats - seen if table.repeats > seen else np.inf
        self._name, self._table = name, table
        self._quality = self.bench.objectives[0]
        self._seed = seed

    def evaluate(self, key: str, repeat: int) -> Score:
        """Return the score of a training; the last seen one is repeated."""
        row = self._order(key)[min(repeat, self.most_trainings - 1)]
        return self._score(key, self._table.trainings[key][row].metrics[self._quality.name])

    def truth(self, key: str) -> Score:
        """Return the ground truth of a mechanism."""
        if np.isinf(self.num_unseen):
            return self._score(key, smooth_truths(self._name)[key])
        unseen = [self._table.trainings[key][i] for i in self._order(key)[self.most_trainings :]]
        scores = [training.metrics.get(self._quality.name, np.nan) for training in unseen]
        return self._score(key, float(np.mean(scores)))

    def _order(self, key: str) -> list[int]:
        """Return the rows of a mechanism's trainings in the order of this search."""
        rng = np.random.default_rng([self._seed, int(key, 16)])
        return rng.permutation(len(self._table.trainings[key])).tolist()

    def _score(self, key: str, value: float) -> Score:
        return self._quality.as_cost(value), self.bench.mechanisms[key][1]


@cache
def smooth_truths(name: str) -> dict[str, float]:
    """Return estimates of the metric of all mechanisms of a table from all its trainings.

    Single trainings are too noisy to say which mechanism of a thousand is the best: the best score
    is too good by several standard deviations. The estimates are the posterior means of a Gaussian
    process over the encoded choices, which pools the trainings of similar mechanisms.
    """
    table, space = _load(name), bench(name)
    scores = {key: np.nanmean(row) for key, row in zip(
        table.mechanisms, table.scores(space.objectives[0].name), strict=True
    )}  # fmt: skip
    candidates = Candidates.of(space)
    rows = list(range(len(candidates.keys)))
    means, _ = posterior(candidates.x, rows, [float(scores[key]) for key in candidates.keys])
    return dict(zip(candidates.keys, means.tolist(), strict=True))


def recorded(name: str, seen: int | None = None) -> Callable[[int], Recorded]:
    """Return a function from a search's seed to the trainings of a table, by name or path.

    Args:
        seen: number of trainings of a mechanism that a search may use; by default all but one, or
            one if there is only one.
    """
    return partial(Recorded, name, seen or max(_load(name).repeats - 1, 1))


_load = cache(load_table)
