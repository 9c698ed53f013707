"""NSGA-II whose offspring are screened by what is believed of them.

Parents are chosen by estimates among everything that was trained. Of many offspring the one is
proposed that is expected to add most to the front's hypervolume, given what was proposed and is not
known yet; one in five is proposed unseen, so that a wrong belief cannot blind the search. Costs are
known exactly, only quality is predicted (as in NSGANetV2, Lu et al. 2020, arXiv 2007.10396).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from moocore import hypervolume

from nas.searching.algorithm import ALGORITHMS
from nas.searching.nsga2 import Nsga2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from nas.genome import Genome
    from nas.searching.algorithm import Materials
    from nas.searching.told import Attempt, Told

    Array = NDArray[np.float64]

POOL: Final = 50  # offspring of which one is proposed
UNSCREENED: Final = 0.2  # share of proposals that are taken as they come
# Seven points of a normal distribution, each for a seventh of it.
POINTS: Final = (-1.47, -0.79, -0.37, 0.0, 0.37, 0.79, 1.47)


@ALGORITHMS.register("surrogate")
class Surrogate:
    """Screened NSGA-II; see the module."""

    def __init__(self, materials: Materials) -> None:
        self._materials = materials
        self._archive = materials.archive
        self._evolution: Nsga2 | None = None

    def tell(self, told: Sequence[Told]) -> None:
        """Choose parents again before the next proposal: the archive has learned."""
        self._evolution = None

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Draw many offspring, and give the most promising one that is new."""
        evolution = self._parents()
        drawn = evolution.propose(rng, num_failed)
        if not self._archive.is_informed or rng.random() < UNSCREENED:
            return drawn
        pool: dict[str, tuple[Attempt, tuple[Genome, Mapping[str, float]]]] = {}
        for _ in range(POOL):
            seen = self._materials.judge.look(drawn.genome)
            if seen.is_new:
                pool[seen.key] = drawn, (seen.genome, seen.costs)
            drawn = evolution.propose(rng, num_failed)
        if not pool:
            return drawn
        gains = self._gains([candidate for _, candidate in pool.values()])
        chosen, _ = list(pool.values())[int(np.argmax(gains))]
        return chosen

    def _parents(self) -> Nsga2:
        """NSGA-II whose population is the best of all that is known, by estimates."""
        if self._evolution is None:
            self._evolution = Nsga2(self._materials)
            known, (means, _) = self._archive.known, self._archive.estimates()
            rows = zip(known, means.tolist(), strict=True)
            if known:
                self._evolution.tell([replace(one, costs=tuple(row)) for one, row in rows])
        return self._evolution

    def _gains(self, candidates: Sequence[tuple[Genome, Mapping[str, float]]]) -> Array:
        """The hypervolume that each candidate is expected to add."""
        objectives = self._materials.objectives
        ideal = np.array([o.as_cost(o.ideal) for o in objectives])
        span = np.array([o.as_cost(o.reference) for o in objectives]) - ideal
        means, errors = self._archive.predict(candidates)
        front = (self._expected() - ideal) / span
        points = np.array(POINTS)[:, None, None]
        rows = ((means - ideal) + points * errors) / span
        gains: Array = np.mean([[_gain(front, row) for row in part] for part in rows], axis=0)
        return gains

    def _expected(self) -> Array:
        """What is known, and what is under way as it is believed to end."""
        archive = self._archive
        means, _ = archive.estimates()
        waiting = [(p.genome, p.costs) for p in archive.pending if p.is_new]
        return np.vstack([means, archive.predict(waiting)[0]]) if waiting else means


def _gain(front: Array, row: Array) -> float:
    """The volume up to 1 in each column that a row dominates and the front does not."""
    if (row >= 1).any():
        return 0.0
    clipped = np.maximum(front, row)
    inside = clipped[(clipped < 1).all(axis=1)]
    own = float(np.prod(1 - row))
    return own - float(hypervolume(inside, np.ones(len(row)))) if len(inside) else own
