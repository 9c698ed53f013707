"""Regularised evolution: the youngest live, the best of a random sample of them becomes a parent.

Real et al. 2019, "Regularized evolution for image classifier architecture search", algorithm 1. A
parent is the best of a random sample of the population, its mutant joins, the oldest leaves.
Departures from the paper, each with its reason:

- The population holds two generations, because in the generational form a whole one joins at once,
  and each candidate shall have a while in which to be a parent.
- With several objectives the parent is drawn from the sample's non-dominated members, each alike:
  crowding would name the two ends of a small front every time.
- A candidate whose training failed grows old like the others and is never a parent.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from nas.common.pareto import non_dominated
from nas.searching.algorithm import ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from nas.searching.algorithm import Materials
    from nas.searching.told import Attempt, Told

GENERATIONS_ALIVE: Final = 2
# The paper's best setting: 25 of 100.
SAMPLE_SHARE: Final = 0.25


@ALGORITHMS.register("regularized-evolution")
class RegularizedEvolution:
    """Aging evolution with Pareto tournaments."""

    def __init__(self, materials: Materials) -> None:
        self._materials = materials
        self._alive: deque[Told] = deque(maxlen=GENERATIONS_ALIVE * materials.population)

    def tell(self, told: Sequence[Told]) -> None:
        """Let what is new in; the oldest leave."""
        self._alive.extend(one for one in told if not one.is_repeat)

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Draw a mutant of a tournament's winner."""
        fit = [(one, one.costs) for one in self._alive if one.costs is not None]
        if not fit:
            return self._materials.sample(rng)
        size = max(2, round(SAMPLE_SHARE * len(fit)))
        chosen = rng.choice(len(fit), size=min(size, len(fit)), replace=False)
        sample = [fit[i] for i in chosen]
        best = non_dominated([costs for _, costs in sample])
        parent, _ = sample[best[rng.integers(len(best))]]
        return self._materials.mutant(parent, rng, num_failed)
