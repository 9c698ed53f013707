"""The recorded trainings of a table, as searches meet them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from benchmarks.peers.problem import Score, bench
from nas.searching.tabular.evaluator import TableEvaluator
from nas.searching.tabular.table import load_table


class Recorded:
    """A table's trainings in an order that the seed draws for each mechanism.

    A search may see ``seen`` of each; its truth is the mean of the others, which it never sees.
    """

    def __init__(self, name: str, seen: int, seed: int) -> None:
        table = _load(name)
        self.bench, self.most_trainings = bench(name), seen
        self.num_unseen = table.repeats - seen
        self._table = table
        self._order = TableEvaluator(table, seed=seed, seen=seen)

    def evaluate(self, key: str, repeat: int) -> Score:
        """One training's accuracy; there are ``seen`` of them."""
        row = self._order.order(key)[min(repeat, self.most_trainings - 1)]
        return self._table.trainings[key][row].metrics["accuracy"], self.bench.mechanisms[key][1]

    def truth(self, key: str) -> Score:
        """The mean of those that no search sees."""
        return self._order.truth(key, "accuracy"), self.bench.mechanisms[key][1]


def recorded(name: str, seen: int = 2) -> Callable[[int], Recorded]:
    """The measure of a search seed, on a table by name or path."""
    return partial(Recorded, name, seen)


_load = cache(load_table)
