"""NSGA-II whose offspring are screened by what is believed of them.

Parents are chosen by estimates among everything that was trained. Of many offspring the one is
proposed that is expected to add most to the front's hypervolume, given what was proposed and is not
known yet; one in five is proposed unseen, so that a wrong belief cannot blind the search. Costs are
known exactly, only quality is predicted (as in NSGANetV2, Lu et al. 2020, arXiv 2007.10396).

Where nothing new promises as much as one more training of something known would teach, that is
proposed: late in a search it is not finding good mechanisms that is left, but telling which of them
are. What it would teach is the knowledge gradient (Frazier et al. 2009, "The knowledge-gradient
policy for correlated normal beliefs") of the hypervolume of the estimates, as if it moved one
estimate alone. A new mechanism counts for what it may be, since it can be trained again, too.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
from moocore import hypervolume, is_nondominated

from nas.searching.algorithm import ALGORITHMS
from nas.searching.nsga2 import Nsga2
from nas.searching.told import REPEAT, Attempt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from nas.genome import Genome
    from nas.searching.algorithm import Materials
    from nas.searching.told import Told

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
        self._ideal = np.array([o.as_cost(o.ideal) for o in materials.objectives])
        reference = [o.as_cost(o.reference) for o in materials.objectives]
        self._span = np.array(reference) - self._ideal
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
        missed = num_failed  # in a row: what lies near the parents may all be known
        for _ in range(POOL):
            seen = self._materials.judge.look(drawn.genome)
            missed = 0 if seen.is_new else missed + 1
            if seen.is_new:
                pool[seen.key] = drawn, (seen.genome, seen.costs)
            drawn = evolution.propose(rng, missed)
        if not pool:
            return drawn
        front = self._expected()
        gains = self._gains(front, [candidate for _, candidate in pool.values()])
        best = int(np.argmax(gains))
        taught, known = self._most_taught(front)
        if known is not None and taught > gains[best]:
            return Attempt(known.genome, REPEAT)
        return list(pool.values())[best][0]

    def _parents(self) -> Nsga2:
        """NSGA-II whose population is the best of all that is known, by estimates."""
        if self._evolution is None:
            self._evolution = Nsga2(self._materials)
            known, (means, _) = self._archive.known, self._archive.estimates()
            rows = zip(known, means.tolist(), strict=True)
            if known:
                self._evolution.tell([replace(one, costs=tuple(row)) for one, row in rows])
        return self._evolution

    def _gains(
        self, front: Array, candidates: Sequence[tuple[Genome, Mapping[str, float]]]
    ) -> Array:
        """The hypervolume that each candidate adds, as expected of its quality."""
        means, errors = self._archive.predict(candidates)
        rows = zip(self._scaled(means), errors / self._span, strict=True)
        return np.array([_expected_gain(front, *row) for row in rows])

    def _most_taught(self, front: Array) -> tuple[float, Told | None]:
        """The known mechanism of which one more training is expected to add most, and how much."""
        known = self._archive.known
        moves = self._archive.learned() / self._span  # by which a training moves each estimate
        members = front[is_nondominated(front)]
        best = front[: len(known)] + POINTS[0] * moves
        is_out = (members[None] <= best[:, None]).all(axis=2).any(axis=1)  # whatever it shows
        total = _volume(front)
        found: list[tuple[float, Told | None]] = [(0.0, None)]
        for i in self._archive.repeatable():
            if not is_out[i]:
                others = np.delete(front, i, axis=0)
                gain = _volume(others) + _expected_gain(others, front[i], moves[i]) - total
                found.append((gain, known[i]))
        return max(found, key=itemgetter(0))

    def _expected(self) -> Array:
        """What is known, then what is under way as it is believed to end; scaled."""
        archive = self._archive
        means, _ = archive.estimates()
        waiting = [(p.genome, p.costs) for p in archive.pending if p.is_new]
        rows = np.vstack([means, archive.predict(waiting)[0]]) if waiting else means
        return self._scaled(rows)

    def _scaled(self, rows: Array) -> Array:
        """Each column with its ideal at 0 and its reference at 1."""
        scaled: Array = (rows - self._ideal) / self._span
        return scaled


def _expected_gain(front: Array, row: Array, spread: Array) -> float:
    """The volume that a row adds to a front, when it is normal around what it is."""
    return float(np.mean([_gain(front, row + point * spread) for point in POINTS]))


def _gain(front: Array, row: Array) -> float:
    """The volume up to 1 in each column that a row dominates and the front does not."""
    if (row >= 1).any():
        return 0.0
    return float(np.prod(1 - row)) - _volume(np.maximum(front, row))


def _volume(rows: Array) -> float:
    """The volume up to 1 in each column that rows dominate."""
    inside = rows[(rows < 1).all(axis=1)]
    return float(hypervolume(inside, np.ones(rows.shape[1]))) if len(inside) else 0.0
