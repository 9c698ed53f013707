"""Baselines: random search and regularised evolution."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np

from nas.common.pareto import non_dominated
from nas.searching.algorithm import ALGORITHMS, Attempt, SearchContext, TrialResult

GENERATIONS_ALIVE: Final = 2
# The best setting of regularised evolution's paper: 25 of 100.
SAMPLE_SHARE: Final = 0.25


@ALGORITHMS.register("random")
class RandomSearch:
    """Random search (Li and Talwalkar 2019): each proposal is a sample of the space."""

    def __init__(self, context: SearchContext) -> None:
        self._context = context

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Ignore the results."""

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Return a random genome of the search space."""
        return self._context.sample(rng)


@ALGORITHMS.register("regularized-evolution")
class RegularizedEvolution:
    """Regularised evolution: the best of a random sample of young candidates becomes a parent.

    Real et al. 2019, "Regularized evolution for image classifier architecture search", algorithm 1:
    a mutant joins the population, and the oldest candidate leaves it. Departures from the paper:

    - The population holds two generations. Without a lag (``SearchConfig.lag``) a whole generation
      joins at once; a population of one generation would be replaced completely each time.
    - With several objectives the parent is drawn uniformly from the sample's non-dominated members:
      crowding distance would always select the two ends of a small front.
    - A candidate whose training failed ages like any other and is never a parent.
    """

    def __init__(self, context: SearchContext) -> None:
        self._context = context
        self._alive: deque[TrialResult] = deque(maxlen=GENERATIONS_ALIVE * context.population)

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Add new candidates to the population, and remove the oldest."""
        self._alive.extend(result for result in results if not result.is_repeat)

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Return a mutant of the best candidate in a random sample of the population."""
        fit = self._context.inside(self._alive)
        if not fit:
            return self._context.sample(rng)
        size = max(2, round(SAMPLE_SHARE * len(fit)))
        chosen = rng.choice(len(fit), size=min(size, len(fit)), replace=False)
        sample = [fit[i] for i in chosen]
        best = non_dominated([costs for _, costs in sample])
        parent, _ = sample[best[rng.integers(len(best))]]
        return self._context.mutant(parent, rng, num_failed)
