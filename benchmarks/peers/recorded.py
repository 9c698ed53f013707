"""The recorded trainings of a table, as seen by searches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from benchmarks.peers.problem import Score, bench
from nas.searching.tabular.evaluator import TableEvaluator
from nas.searching.tabular.table import load_table


class Recorded:
    """A table's trainings, in an order drawn from a seed for each mechanism.

    A search sees the first ``seen`` trainings of a mechanism. The ground truth is the mean of its
    other trainings.
    """

    def __init__(self, name: str, seen: int, seed: int) -> None:
        table = _load(name)
        self.bench, self.most_trainings = bench(name), seen
        self.num_unseen = table.repeats - seen
        self._table = table
        self._order = TableEvaluator(table, seed=seed, seen=seen)

    def evaluate(self, key: str, repeat: int) -> Score:
        """Return accuracy and MACs of a training; the last seen one is repeated."""
        row = self._order.order(key)[min(repeat, self.most_trainings - 1)]
        return self._table.trainings[key][row].metrics["accuracy"], self.bench.mechanisms[key][1]

    def truth(self, key: str) -> Score:
        """Return the mean accuracy of the unseen trainings, and MACs."""
        return self._order.truth(key, "accuracy"), self.bench.mechanisms[key][1]


def recorded(name: str, seen: int = 2) -> Callable[[int], Recorded]:
    """Return a function from a search's seed to the trainings of a table, by name or path."""
    return partial(Recorded, name, seen)


_load = cache(load_table)
