"""Regularised evolution: the youngest live, the best of a random sample become parents.

Real et al. 2019, "Regularized evolution for image classifier architecture search", algorithm 1. A
parent is the best of a random sample of the population, its mutant joins, the oldest leaves.
Departures from the paper, each with its reason:

- One generation joins at once, because its members are trained in parallel. The population
  therefore holds two generations, so that each candidate has a while in which to be a parent.
- With several objectives the parent is drawn from the sample's non-dominated members, each alike:
  crowding would name the two ends of a small front every time.
- A candidate whose training failed grows old like the others and is never a parent.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from nas.pareto import non_dominated
from nas.search.novelty import fill, new_ones

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas.search.algorithm import Costs, Materials, Result
    from nas.search.novelty import Attempt, Proposed

GENERATIONS_ALIVE: Final = 2
# The paper's best setting: 25 of 100.
SAMPLE_SHARE: Final = 0.25


class RegularizedEvolution:
    """Aging evolution with Pareto tournaments."""

    def __init__(self, materials: Materials) -> None:
        self._materials = materials
        self._rng = np.random.default_rng(materials.seed)
        capacity = GENERATIONS_ALIVE * materials.population
        self._alive: deque[tuple[Proposed, Result]] = deque(maxlen=capacity)
        self._asked: list[Proposed] | None = None

    def ask(self) -> list[Proposed]:
        """Propose mutants of tournament winners; at first mechanisms and samples."""
        materials = self._materials
        if self._asked is None:
            proposals = materials.first_generation(self._rng)
        else:
            fit = [(p, result) for p, result in self._alive if result is not None]
            proposals = fill(
                materials.novelty, materials.population, lambda failed: self._draw(fit, failed)
            )
        self._asked = new_ones(proposals)
        return proposals

    def tell(self, results: Sequence[Result]) -> None:
        """Let the new ones in; the oldest leave."""
        assert self._asked is not None, "tell before ask"
        self._alive.extend(zip(self._asked, results, strict=True))

    def _draw(self, fit: Sequence[tuple[Proposed, Costs]], num_failed: int) -> Attempt:
        if not fit:
            return self._materials.sample(self._rng)
        size = max(2, round(SAMPLE_SHARE * len(fit)))
        chosen = self._rng.choice(len(fit), size=min(size, len(fit)), replace=False)
        sample = [fit[i] for i in chosen]
        best = non_dominated([costs for _, costs in sample])
        parent, _ = sample[best[self._rng.integers(len(best))]]
        return self._materials.mutant(parent, self._rng, num_failed)
