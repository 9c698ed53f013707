"""NSGA-II with a surrogate model: offspring are screened by expected hypervolume improvement.

Parents are selected from all trained mechanisms by their estimates. The algorithm draws many
offspring and proposes the offspring that is expected to increase the hypervolume of the front most.
The front includes pending proposals with their predicted objectives. One in five proposals is
not screened, so that a wrong model cannot mislead the search. Costs are known exactly;
only metrics are predicted (as in NSGANetV2, Lu et al. 2020, arXiv 2007.10396).

A known mechanism is trained again if this has a greater expected gain than every offspring. Such
re-evaluations distinguish good mechanisms late in a search. The gain is the expected increase of
the hypervolume of the estimated front when the estimate of this mechanism changes and all other
estimates stay fixed (knowledge gradient, Frazier et al. 2009, "The knowledge-gradient policy for
correlated normal beliefs").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
from moocore import hypervolume, is_nondominated
from numpy.typing import NDArray

from nas.genome import Genome
from nas.searching.algorithm import ALGORITHMS, SearchContext
from nas.searching.nsga2 import Nsga2
from nas.searching.results import REPEAT, Attempt, TrialResult

if TYPE_CHECKING:
    Array = NDArray[np.float64]

POOL: Final = 50  # number of offspring from which one is selected
UNSCREENED: Final = 0.2  # share of proposals without screening
# Seven equally likely points of a standard normal distribution.
POINTS: Final = (-1.47, -0.79, -0.37, 0.0, 0.37, 0.79, 1.47)


@ALGORITHMS.register("surrogate")
class Surrogate:
    """NSGA-II that draws many offspring and proposes the one with the greatest expected gain."""

    def __init__(self, context: SearchContext) -> None:
        self._context = context
        self._archive = context.archive
        self._ideal = np.array([o.as_cost(o.ideal) for o in context.objectives])
        reference = [o.as_cost(o.reference) for o in context.objectives]
        self._span = np.array(reference) - self._ideal
        self._evolution: Nsga2 | None = None

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Discard the selected parents: the archive has new estimates to select them from."""
        self._evolution = None

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Return the offspring with the greatest expected gain, or a mechanism to train again."""
        evolution = self._parents()
        drawn = evolution.propose(rng, num_failed)
        if not self._archive.is_informed or rng.random() < UNSCREENED:
            return drawn
        pool: dict[str, tuple[Attempt, tuple[Genome, Mapping[str, float]]]] = {}
        # Draws in a row that are not new; all neighbours of the parents may have been trained.
        num_missed = num_failed
        for _ in range(POOL):
            info = self._context.filter.inspect(drawn.genome)
            num_missed = 0 if info.is_new else num_missed + 1
            if info.is_new:
                pool[info.key] = drawn, (info.genome, info.costs)
            drawn = evolution.propose(rng, num_missed)
        if not pool:
            return drawn
        front = self._expected()
        gains = self._gains(front, [candidate for _, candidate in pool.values()])
        best = int(np.argmax(gains))
        gain, result = self._best_reevaluation(front)
        if result is not None and gain > gains[best]:
            return Attempt(result.genome, REPEAT)
        return list(pool.values())[best][0]

    def _parents(self) -> Nsga2:
        """Return an NSGA-II whose population is the best trained mechanisms by estimates."""
        if self._evolution is None:
            self._evolution = Nsga2(self._context)
            known, (means, _) = self._archive.known, self._archive.estimates()
            rows = zip(known, means.tolist(), strict=True)
            if known:
                self._evolution.tell([replace(result, costs=tuple(row)) for result, row in rows])
        return self._evolution

    def _gains(
        self, front: Array, candidates: Sequence[tuple[Genome, Mapping[str, float]]]
    ) -> Array:
        """Return by how much hypervolume each candidate is expected to add to a front."""
        means, errors = self._archive.predict(candidates)
        rows = zip(self._scaled(means), errors / self._span, strict=True)
        return np.array([_expected_gain(front, *row) for row in rows])

    def _best_reevaluation(self, front: Array) -> tuple[float, TrialResult | None]:
        """Return the greatest expected gain of training a mechanism again, and this mechanism.

        If no mechanism has a positive gain, return 0 and None.
        """
        known = self._archive.known
        shifts = self._archive.expected_shift() / self._span
        members = front[is_nondominated(front)]
        best = front[: len(known)] + POINTS[0] * shifts
        is_out = (members[None] <= best[:, None]).all(axis=2).any(axis=1)
        total = _volume(front)
        options: list[tuple[float, TrialResult | None]] = [(0.0, None)]
        for i in self._archive.repeatable():
            if not is_out[i]:
                others = np.delete(front, i, axis=0)
                gain = _volume(others) + _expected_gain(others, front[i], shifts[i]) - total
                options.append((gain, known[i]))
        return max(options, key=itemgetter(0))

    def _expected(self) -> Array:
        """Return scaled estimates of trained mechanisms, then predictions of pending ones."""
        archive = self._archive
        means, _ = archive.estimates()
        pending = [(p.genome, p.costs) for p in archive.pending if p.is_new]
        rows = np.vstack([means, archive.predict(pending)[0]]) if pending else means
        return self._scaled(rows)

    def _scaled(self, rows: Array) -> Array:
        """Return objectives scaled so that ideal values are 0 and reference values are 1."""
        scaled: Array = (rows - self._ideal) / self._span
        return scaled


def _expected_gain(front: Array, row: Array, spread: Array) -> float:
    """Return the expected hypervolume that a mechanism with uncertain objectives adds to a front.

    Args:
        front: scaled objectives of other mechanisms, (mechanisms, objectives).
        row: means of the mechanism's scaled objectives, which are normally distributed.
        spread: standard deviations of these objectives.
    """
    return float(np.mean([_gain(front, row + point * spread) for point in POINTS]))


def _gain(front: Array, row: Array) -> float:
    """Return the hypervolume, up to the reference values 1, that a row adds to a front."""
    if (row >= 1).any():
        return 0.0
    return float(np.prod(1 - row)) - _volume(np.maximum(front, row))


def _volume(rows: Array) -> float:
    """Return the hypervolume of rows of scaled objectives, up to the reference values 1."""
    inside = rows[(rows < 1).all(axis=1)]
    return float(hypervolume(inside, np.ones(rows.shape[1]))) if len(inside) else 0.0
