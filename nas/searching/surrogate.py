"""NSGA-II with a surrogate model: offspring are screened by expected hypervolume improvement.

The algorithm draws a pool of offspring, once for all proposals that are computed from the same
results, in rounds: the parents of the first round are the best trained mechanisms by their
estimates; the parents of a later round are the best of these and of earlier offspring by optimistic
predictions (as in NSGANetV2, Lu et al. 2020, arXiv 2007.10396). The algorithm proposes the
offspring with the greatest expected gain: the increase of the hypervolume of the front, which
includes pending proposals, times the probability that the offspring misses no gate of the task. One
in ten proposals is not screened by the model, so that a wrong model cannot mislead the search.

A known mechanism is trained again if this has a greater expected gain (``nas.searching.archive``)
than every offspring. Such re-evaluations distinguish good mechanisms late in a search.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Final

import numpy as np

from nas.common.objectives import limits_of
from nas.searching.algorithm import ALGORITHMS, DRAW, REPEAT, Attempt, SearchContext, TrialResult
from nas.searching.archive import expected_gain, front_members, gains_of_shifts, non_dominated_rows
from nas.searching.nsga2 import Nsga2
from nas.searching.power_transform import Array

ROUNDS: Final = 3  # rounds in which a pool of offspring is drawn
DRAWN: Final = 17  # offspring of a round for each proposal, including offspring that are not new
MOST_DRAWN: Final = 200  # offspring of a round
# Least probability of feasibility of an offspring that is proposed, or is a parent. A feature that
# occurs only in trainings that missed a gate has no scores, and so keeps a large expected gain.
FEASIBLE: Final = 0.5
OPTIMISM: Final = 1.0  # standard errors by which predictions of parents are improved
WALK: Final = "walk"  # operator of an offspring that is several changes away from its parents
UNSCREENED: Final = 0.1  # share of proposals without screening


@dataclass
class _Beliefs:
    """What is computed once from the results so far; objectives are scaled."""

    front: Array  # estimates of the trained mechanisms of the front, (mechanisms, objectives)
    pool: dict[str, Attempt]  # offspring by key, in the order of the next three
    means: Array  # predictions, (offspring, objectives)
    errors: Array
    p_feasible: Array  # probabilities that they miss no gate, (offspring,)
    # A heap of (-gain, row) of the offspring that probably miss no gate. A gain is an upper bound:
    # the gain at the last time it was computed. Gains fall as the front grows.
    gains: list[tuple[float, int]]
    repeats: list[tuple[float, TrialResult]]  # useful re-evaluations, the greatest gain first
    predicted: dict[str, Array]  # predictions of pending proposals, by key


@ALGORITHMS.register("surrogate")
class Surrogate:
    """Proposes the offspring with the greatest expected gain."""

    lag = 16  # below a generation, whose proposals would share one wrong prediction

    def __init__(self, context: SearchContext) -> None:
        self._context = context
        self._archive = context.archive
        self._limits = np.array(limits_of(context.objectives))
        self._parents: Nsga2 | None = None
        self._beliefs: _Beliefs | None = None
        self._num_told = 0

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Discard what was computed from the earlier results."""
        self._parents = self._beliefs = None
        self._num_told += len(results)

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Return the offspring with the greatest expected gain, or a mechanism to train again."""
        if not self._archive.is_informed or rng.random() < UNSCREENED:
            return self._evolution().propose(rng, num_failed)
        beliefs = self._beliefs or self._believe()
        front = self._expected(beliefs)
        gain, best = self._best_offspring(beliefs, front)
        pending = {proposal.key for proposal in self._archive.pending}
        repeats = (option for option in beliefs.repeats if option[1].key not in pending)
        repeat_gain, result = next(repeats, (0.0, None))
        if result is not None and repeat_gain > gain:
            return Attempt(result.genome, REPEAT)
        return best or self._evolution().propose(rng, num_failed)

    def _evolution(self) -> Nsga2:
        if self._parents is None:
            self._parents = self._nsga2(self._archive.known, self._archive.estimates()[0])
        return self._parents

    def _nsga2(self, results: Sequence[TrialResult], rows: Array) -> Nsga2:
        evolution = Nsga2(self._context)
        if results:
            best = _first_fronts(rows, self._limits, self._context.population)
            evolution.tell([replace(results[i], costs=tuple(rows[i])) for i in best])
        return evolution

    def _believe(self) -> _Beliefs:
        archive = self._archive
        pool, means, errors, p_feasible = self._draw()
        estimates = archive.scaled(archive.estimates()[0])
        shifts = archive.expected_shift() / archive.span
        gains = gains_of_shifts(estimates, shifts, archive.repeatable())
        repeats = [(gain, archive.known[i]) for gain, i in gains if gain > 0]
        self._beliefs = _Beliefs(
            front=non_dominated_rows(estimates),
            pool=pool,
            means=archive.scaled(means),
            errors=errors / archive.span,
            p_feasible=p_feasible,
            gains=[(-np.inf, row) for row in np.flatnonzero(p_feasible >= FEASIBLE).tolist()],
            repeats=sorted(repeats, key=lambda option: -option[0]),
            predicted={},
        )
        return self._beliefs

    def _draw(self) -> tuple[dict[str, Attempt], Array, Array, Array]:
        """Draw distinct offspring that are legal and have no result yet.

        The offspring depend on the results alone, so that a resumed run draws the same. Returned
        are the first four fields of `_Beliefs` after the front, not scaled.
        """
        rng = self._context.generator(self._num_told, DRAW)
        known, estimates = self._archive.known, self._archive.estimates()[0]
        pool: dict[str, Attempt] = {}
        results: list[TrialResult] = []
        means, errors = np.empty((2, 0, estimates.shape[1]))
        p_feasible = np.empty(0)
        for _ in range(ROUNDS):
            is_parent = p_feasible >= FEASIBLE
            optimistic = np.vstack([estimates, (means - OPTIMISM * errors)[is_parent]])
            parents = [*known, *compress(results, is_parent)]
            new = self._offspring(self._nsga2(parents, optimistic), pool, rng)
            if new:
                results += new
                candidates = [(result.genome, result.known_costs) for result in new]
                predicted = self._archive.predict(candidates)
                means = np.vstack([means, predicted[0]])
                errors = np.vstack([errors, predicted[1]])
                p_feasible = np.append(p_feasible, self._archive.p_feasible(candidates))
        return pool, means, errors, p_feasible

    def _offspring(
        self, evolution: Nsga2, pool: dict[str, Attempt], rng: np.random.Generator
    ) -> list[TrialResult]:
        """Draw the offspring of a round, add those that are new to ``pool``, and return them."""
        filter_, new = self._context.filter, dict[str, tuple[Attempt, TrialResult]]()
        origins = {filter_.inspect(a.genome).digest: a for a in pool.values()}
        # Draws in a row that are not new; all neighbours of the parents may have been trained.
        num_missed = 0
        for _ in range(min(MOST_DRAWN, DRAWN * self._context.batch)):
            drawn = evolution.propose(rng, num_missed)
            info = filter_.inspect(drawn.genome)
            num_missed += 1
            is_known = info.key in pool or info.key in new or self._archive.has(info.key)
            if not info.note and not is_known:
                fields = self._num_told, info.genome, info.digest, info.key, None
                result = TrialResult(*fields, known_costs=info.costs)
                new[info.key] = _traced(drawn, origins), result
                num_missed = 0
        near = {k: v for k, v in new.items() if self._context.is_affordable(v[1].genome)}
        pool |= {key: attempt for key, (attempt, _) in (near or new).items()}
        return [result for _, result in (near or new).values()]

    def _best_offspring(self, beliefs: _Beliefs, front: Array) -> tuple[float, Attempt | None]:
        """Return the greatest expected gain of new offspring, or -inf, and its attempt."""
        attempts, heap = list(beliefs.pool.values()), beliefs.gains
        while heap:
            _, row = heap[0]
            if not self._context.filter.inspect(attempts[row].genome).is_new:
                heapq.heappop(heap)
                continue
            gain = expected_gain(front, beliefs.means[row], beliefs.errors[row])
            gain *= float(beliefs.p_feasible[row])
            heapq.heapreplace(heap, (-gain, row))
            if heap[0] == (-gain, row):
                return gain, attempts[row]
        return -np.inf, None

    def _expected(self, beliefs: _Beliefs) -> Array:
        """Return scaled estimates of the front, then scaled predictions of pending mechanisms."""
        pending = [p for p in self._archive.pending if p.is_new]
        missing = [p for p in pending if p.key not in beliefs.predicted]
        if missing:
            means, _ = self._archive.predict([(p.genome, p.costs) for p in missing])
            keys = [str(proposal.key) for proposal in missing]
            beliefs.predicted.update(zip(keys, self._archive.scaled(means), strict=True))
        rows = [beliefs.predicted[str(p.key)] for p in pending]
        return non_dominated_rows(np.vstack([beliefs.front, *rows]))


def _traced(drawn: Attempt, origins: Mapping[str, Attempt]) -> Attempt:
    """Return an attempt whose parents have been trained.

    A parent among the untrained ``origins`` (by digest) is replaced by its own parents.
    """
    if origins.keys().isdisjoint(drawn.parents):
        return drawn
    sources = [origins[p].parents if p in origins else (p,) for p in drawn.parents]
    parents = tuple(dict.fromkeys(digest for source in sources for digest in source))
    return replace(drawn, operator=WALK, parents=parents)


def _first_fronts(rows: Array, limits: Array, count: int) -> list[int]:
    """Return indices of the first fronts that hold ``count`` rows, those inside limits first."""
    chosen: list[int] = []
    left = np.arange(len(rows))
    while len(left) and len(chosen) < count:
        is_inside = (rows[left] <= limits).all(axis=1)
        is_member = front_members(rows[left], limits if is_inside.any() else np.array(np.inf))
        chosen += left[is_member].tolist()
        left = left[~is_member]
    return sorted(chosen)
