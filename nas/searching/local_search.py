"""Pareto local search: mutants of the non-dominated candidates.

Paquete et al. 2004, "Pareto local optimum sets in the biobjective traveling salesman problem",
define Pareto local search. White et al. 2021, "Exploring the loss landscape in neural architecture
search", show that local search is a strong baseline. The original algorithm tries every neighbour
of every non-dominated candidate. Here a proposal is one random neighbour, that is, a mutant of one
non-dominated candidate; each candidate has the same probability.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nas.common.pareto import non_dominated
from nas.searching.algorithm import ALGORITHMS, SearchContext
from nas.searching.results import Attempt, TrialResult


@ALGORITHMS.register("local-search")
class LocalSearch:
    """Pareto local search: each proposal is a mutant of a random non-dominated candidate."""

    def __init__(self, context: SearchContext) -> None:
        self._context = context
        self._front: list[TrialResult] = []

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Update the set of non-dominated candidates among all results so far."""
        candidates = [result for result in (*self._front, *results) if not result.is_repeat]
        rows = self._context.inside(candidates)
        self._front = [rows[i][0] for i in non_dominated([costs for _, costs in rows])]

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Return a mutant of a random non-dominated candidate."""
        if not self._front:
            return self._context.sample(rng)
        parent = self._front[int(rng.integers(len(self._front)))]
        return self._context.mutant(parent, rng, num_failed)
