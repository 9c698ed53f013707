"""Everything that a search has measured, and what is believed of it.

The archive folds results as algorithms do: its state depends on what it was told, in order. Costs
are known exactly; each metric has a ``Belief``. Estimates stand in for scores wherever mechanisms
are compared: a mean over unequal numbers of trainings would prefer the one lucky training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from moocore import is_nondominated

from nas.searching.belief import Belief
from nas.searching.features import features
from nas.store.records import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from nas.common.objectives import Objective
    from nas.genome import Genome
    from nas.searching.told import Costs, Told
    from nas.store import Proposal

    Array = NDArray[np.float64]

DRAWS: Final = 200  # of all qualities at once, behind each probability
FAR: Final = 3.0  # standard errors by which an estimate may be wrong
TINY: Final = 1e-30
FEWEST: Final = 8  # mechanisms known, before anything is believed


@dataclass
class Archive:
    """What was told, by resolved digest.

    What failed is left out. What missed a gate is learned from, and is no more ``known``.

    Attributes:
        objectives: of the run.
        pending: proposals whose results are not told yet.
        most_trainings: of one mechanism at most; with 1 nothing is repeated.
        beliefs: of each metric, by its column among the objectives.
    """

    objectives: Sequence[Objective]
    pending: list[Proposal] = field(default_factory=list)
    most_trainings: float = math.inf

    def __post_init__(self) -> None:
        self._first: dict[str, Told] = {}
        self._bad: set[str] = set()
        metrics = [i for i, objective in enumerate(self.objectives) if objective.is_metric]
        self.beliefs = {column: Belief() for column in metrics}
        self._num_told = 0
        self._estimates: tuple[Array, Array] | None = None
        self._p: Array | None = None

    def tell(self, told: Iterable[Told]) -> None:
        """Learn results; a mechanism one of whose trainings failed is known no more."""
        for one in told:
            self._num_told += 1
            if one.costs is None:
                self._bad.add(one.key)
            for costs in one.each or ((one.costs,) if one.costs else ()):
                self._learn(one, costs)
        self._estimates = self._p = None

    @property
    def is_informed(self) -> bool:
        """Whether enough is known to believe anything."""
        return bool(self.beliefs) and len(self.known) >= FEWEST

    @property
    def known(self) -> list[Told]:
        """The first result of each mechanism that never failed, in order."""
        return [one for key, one in self._first.items() if key not in self._bad]

    def estimates(self) -> tuple[Array, Array]:
        """Of what is ``known``: objectives, lower is better, and their standard errors."""
        if self._estimates is None:
            keys = [one.key for one in self.known]
            costs = [one.costs for one in self.known]
            means = np.array(costs, float).reshape(len(keys), len(self.objectives))
            errors = np.zeros_like(means)
            if self.is_informed:
                for column, belief in self.beliefs.items():
                    means[:, column], errors[:, column] = belief.estimate(keys)
            self._estimates = means, errors
        return self._estimates

    def predict(
        self, candidates: Sequence[tuple[Genome, Mapping[str, float]]]
    ) -> tuple[Array, Array]:
        """The same of mechanisms that were not trained, from genomes and counted costs."""
        seen = [features(*candidate) for candidate in candidates]
        means = np.array([self._counted(costs) for _, costs in candidates], float)
        errors = np.zeros_like(means)
        for column, belief in self.beliefs.items():
            means[:, column], errors[:, column] = belief.predict(seen)
        return means, errors

    def p_non_dominated(self) -> Array:
        """For each that is ``known``, how likely no other one dominates it."""
        if self._p is None:
            means, errors = self.estimates()
            self._p = _non_dominated(means).astype(float)
            if self.is_informed:
                rows = np.flatnonzero(_contenders(means, errors))
                self._p[:] = 0.0
                known = self.known
                self._p[rows] = self._shares(means[rows], [known[i].key for i in rows])
        return self._p

    def _shares(self, means: Array, keys: Sequence[str]) -> Array:
        """In how many of the draws of their qualities nothing among them dominates each."""
        rng = np.random.default_rng(self._num_told)
        drawn = np.repeat(means[None], DRAWS, axis=0)
        for column, belief in self.beliefs.items():
            drawn[:, :, column] = belief.draws(keys, DRAWS, rng)
        found: Array = np.mean([_non_dominated(rows) for rows in drawn], axis=0)
        return found

    def most_doubtful(self) -> Told | None:
        """The likely member of the front of which one more training tells most.

        By the probability of membership, times the variance that the training takes away.
        """
        if not self.is_informed:
            return None
        gain = np.zeros(len(self.known))
        for column, belief in self.beliefs.items():
            gain += (self.learned()[:, column] / (belief.noise or 1.0)) ** 2
        worth = self.p_non_dominated() * gain
        rows = self.repeatable()
        return self.known[max(rows, key=lambda i: worth[i])] if rows else None

    def repeatable(self) -> list[int]:
        """Rows of what is ``known`` that may be trained once more, and are not being trained."""
        waiting = {proposal.key for proposal in self.pending}
        belief = next(iter(self.beliefs.values()))
        return [
            row
            for row, one in enumerate(self.known)
            if one.key not in waiting and belief.trainings(one.key) < self.most_trainings
        ]

    def learned(self) -> Array:
        """By how much one more training is expected to move each estimate: a standard deviation."""
        moves = np.zeros_like(self.estimates()[1])
        for column, belief in self.beliefs.items():
            variances = self.estimates()[1][:, column] ** 2
            moves[:, column] = variances / np.sqrt(variances + belief.noise**2 + TINY)
        return moves

    def _learn(self, one: Told, costs: Costs) -> None:
        self._first.setdefault(one.key, one)
        seen = features(one.genome, one.counted)
        for column, belief in self.beliefs.items():
            # Worse than chance is chance: how much worse says nothing.
            objective = self.objectives[column]
            worst = objective.as_cost(objective.reference)
            cost = costs[column]
            belief.tell(one.key, seen, min(cost, worst), is_cut=cost >= worst)

    def _counted(self, costs: Mapping[str, float]) -> list[float]:
        return [o.as_cost(costs.get(o.name, 0.0)) for o in self.objectives]


def believe(objectives: Sequence[Objective], told: Sequence[Told]) -> list[Estimate]:
    """What follows from these results: an estimate of every mechanism that never failed."""
    archive = Archive(objectives)
    archive.tell(told)
    known = archive.known
    if not known:
        return []
    means, errors = archive.estimates()
    members = _non_dominated(means)
    p = archive.p_non_dominated()
    return [
        Estimate(
            key=one.key,
            means={
                o.name: o.as_cost(v) for o, v in zip(objectives, means[i].tolist(), strict=True)
            },
            errors={
                o.name: error
                for o, error in zip(objectives, errors[i].tolist(), strict=True)
                if o.is_metric and error > 0
            },
            p=float(p[i]),
            is_member=bool(members[i]),
        )
        for i, one in enumerate(known)
    ]


def _contenders(means: Array, errors: Array) -> NDArray[np.bool_]:
    """Which rows nothing dominates when they are at their best and the others at their worst."""
    worst = means + FAR * errors
    worst = worst[_non_dominated(worst)]
    best = (means - FAR * errors)[:, None]
    is_beaten = np.all(worst <= best, axis=2) & np.any(worst < best, axis=2)
    found: NDArray[np.bool_] = ~np.any(is_beaten, axis=1)
    return found


def _non_dominated(rows: Array) -> NDArray[np.bool_]:
    """Which rows no other one dominates; equal rows stay together."""
    found: NDArray[np.bool_] = is_nondominated(rows, keep_weakly=True)
    return found
