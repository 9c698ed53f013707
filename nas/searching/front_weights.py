"""The weights of the front's members: kept while a candidate may be one, removed when it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.pareto import dominates
from nas.store.weights import drop_weights, keep_weights

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from nas.evaluation.trial import Evaluation
    from nas.searching.algorithm import Costs


class FrontWeights:
    """Files of weights in a run's folder; see ``nas.store.weights``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._front: dict[str, Costs] = {}
        self._is_tidy = False

    def keep(self, key: str, evaluation: Evaluation) -> None:
        """Write what a training brought along; to be called before it is recorded."""
        if evaluation.weights is not None and evaluation.is_ok:
            keep_weights(self._folder, key, evaluation.weights)
            self._is_tidy = False

    def learn(self, key: str, costs: Costs | None) -> None:
        """Know a candidate's result; None if its training failed."""
        self._is_tidy = False
        if costs is None or any(dominates(known, costs) for known in self._front.values()):
            return
        self._front = {k: c for k, c in self._front.items() if not dominates(costs, c)}
        self._front[key] = costs

    def tidy(self, waiting: Collection[str]) -> None:
        """Remove the files of all but the front and those whose result is still to come."""
        if not self._is_tidy:
            drop_weights(self._folder, {*self._front, *waiting})
            self._is_tidy = True
