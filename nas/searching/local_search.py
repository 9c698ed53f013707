"""Pareto local search: neighbours of what nobody dominates.

White et al. 2021, "Exploring the loss landscape in neural architecture search" (local search is a
strong baseline), and Paquete et al. 2004, "Pareto local optimum sets in the biobjective traveling
salesman problem": every neighbour of every member of the archive's front is tried. Here a
neighbourhood is not listed but drawn from: one mutation of one member, each alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.common.pareto import non_dominated
from nas.searching.algorithm import ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from nas.searching.algorithm import Materials
    from nas.searching.told import Attempt, Told


@ALGORITHMS.register("local-search")
class LocalSearch:
    """Mutants of the front; see the module."""

    def __init__(self, materials: Materials) -> None:
        self._materials = materials
        self._front: list[Told] = []

    def tell(self, told: Sequence[Told]) -> None:
        """Keep what nobody dominates."""
        known = [one for one in (*self._front, *told) if not one.is_repeat]
        rows = [(one, one.costs) for one in known if one.costs is not None]
        self._front = [rows[i][0] for i in non_dominated([costs for _, costs in rows])]

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Draw a mutant of one member, each alike."""
        if not self._front:
            return self._materials.sample(rng)
        parent = self._front[int(rng.integers(len(self._front)))]
        return self._materials.mutant(parent, rng, num_failed)
