"""All results of a search, and estimates of every mechanism's objectives.

An objective is a cost or a metric; in this module, lower is better. Costs are known exactly. Each
metric is estimated by a Gaussian process (``NoisyGP``) from the trainings of the mechanism and of
similar mechanisms. Mechanisms are compared by these estimates, since a mean over few trainings may
be high by luck.

Another Gaussian process predicts the probability that a mechanism is feasible, that is, misses no
gate of the task (unknown constraints, Gelbart et al. 2014, arXiv 1403.5607).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self, cast

import numpy as np
from moocore import hypervolume, is_nondominated
from numpy.typing import NDArray

from nas.common.objectives import Objective, as_costs, limits_of
from nas.genome import Genome
from nas.searching.algorithm import Costs, TrialResult
from nas.searching.power_transform import Array
from nas.searching.quality_model import NoisyGP, features
from nas.store import Proposal
from nas.store.records import Estimate

DRAWS: Final = 200  # joint posterior samples from which a probability is computed
FAR: Final = 3.0  # half-width of the confidence interval of an estimate, in standard errors
TINY: Final = 1e-30  # avoids a division by zero
FEWEST: Final = 8  # mechanisms with a result that are needed to fit a model
# Seven equally likely points of a standard normal distribution.
POINTS: Final = (-1.47, -0.79, -0.37, 0.0, 0.37, 0.79, 1.47)


@dataclass
class Archive:
    """The results of a search by mechanism, and a model of each metric.

    Attributes:
        pending: proposals that are being trained.
        most_trainings: maximum number of trainings of a mechanism.
        work_ratio: work of a training under the target task, where a short training's is 1.
        models: model of each metric, by its index among the objectives.
        known: first result of each mechanism whose trainings all succeeded, in order of proposal.
        span: corner minus ideal value of each objective, lower is better, (objectives,).
    """

    objectives: Sequence[Objective]
    pending: list[Proposal] = field(default_factory=list)
    most_trainings: float = math.inf
    work_ratio: float = 1.0
    model_class: ClassVar[type[NoisyGP]] = NoisyGP

    def __post_init__(self) -> None:
        self._first: dict[str, TrialResult] = {}
        self._bad: set[str] = set()
        self.known: list[TrialResult] = []
        self._limits = np.array(limits_of(self.objectives))
        self._ideal = np.array([o.as_cost(o.ideal) for o in self.objectives])
        self.span = np.array([o.as_cost(o.corner) for o in self.objectives]) - self._ideal
        metrics = [i for i, objective in enumerate(self.objectives) if objective.is_metric]
        self.models = {column: self.model_class() for column in metrics}
        self._misses = NoisyGP()  # of 1 for a training that missed a gate, and 0 for any other
        self._has_misses = False
        self._num_results = 0
        self._reported: dict[str, tuple[Costs, bool]] = {}  # means and membership, by key
        self._estimates: tuple[Array, Array] | None = None
        self._p: Array | None = None

    def tell(self, results: Iterable[TrialResult]) -> None:
        """Add results; a mechanism with a failed training is removed from ``known``."""
        for result in results:
            self._num_results += 1
            if result.costs is None:
                self._bad.add(result.key)
            for costs in result.trainings or ((result.costs,) if result.costs else ()):
                self._learn(result, costs)
        self.known = [result for key, result in self._first.items() if key not in self._bad]
        self._estimates = self._p = None

    def twin(self) -> Self:
        """Return an empty archive that shares the fits. It must receive the same results."""
        twin = replace(self, pending=[])
        twin.models = {column: model.twin() for column, model in self.models.items()}
        return twin

    def has(self, key: str) -> bool:
        """Return whether the archive has a result of a mechanism, also a failure."""
        return key in self._first or key in self._bad

    def scaled(self, rows: Array) -> Array:
        """Return objectives scaled: ideal values are 0, corners are 1."""
        return cast("Array", (rows - self._ideal) / self.span)

    @property
    def is_informed(self) -> bool:
        """Whether there are enough results to estimate metrics by ``models``."""
        return bool(self.models) and len(self.known) >= FEWEST

    def estimates(self) -> tuple[Array, Array]:
        """Return estimates of ``known`` and their standard errors, (mechanisms, objectives)."""
        if self._estimates is None:
            keys = [result.key for result in self.known]
            costs = [result.costs for result in self.known]
            means = np.array(costs, float).reshape(len(keys), len(self.objectives))
            errors = np.zeros_like(means)
            if self.is_informed:
                for column, model in self.models.items():
                    means[:, column], errors[:, column] = model.estimate(keys)
            self._estimates = means, errors
        return self._estimates

    def new_posterior(self) -> tuple[list[Estimate], bool]:
        """Return the estimates that differ from those of the previous call, and those of the front.

        The second value is whether all other mechanisms keep their previous estimates. It is False
        in the first call, and if a mechanism has failed since.
        """
        if not self.known:
            return [], False
        means, before = self.estimates()[0], self._reported
        states = zip(map(tuple, means.tolist()), self._members(means).tolist(), strict=True)
        keys = [result.key for result in self.known]
        self._reported = dict(zip(keys, states, strict=True))
        has_others = bool(before) and before.keys() <= self._reported.keys()
        rows = [
            row
            for row, (key, state) in enumerate(self._reported.items())
            if state[1] or not has_others or before.get(key) != state
        ]
        return self._estimates_of(rows), has_others

    def _estimates_of(self, rows: Iterable[int]) -> list[Estimate]:
        means, errors = (values.tolist() for values in self.estimates())
        members, p = self._members(self.estimates()[0]).tolist(), self.p_non_dominated().tolist()
        signs = [(i, o.name, o.as_cost(1.0)) for i, o in enumerate(self.objectives)]
        metrics = [(i, o.name) for i, o in enumerate(self.objectives) if o.is_metric]
        return [
            Estimate(
                key=self.known[row].key,
                means={name: sign * means[row][i] for i, name, sign in signs},
                errors={name: errors[row][i] for i, name in metrics if errors[row][i] > 0},
                p=p[row],
                is_member=members[row],
            )
            for row in rows
        ]

    def predict(
        self, candidates: Sequence[tuple[Genome, Mapping[str, float]]]
    ) -> tuple[Array, Array]:
        """Return predictions and standard errors of genomes, given costs, (genomes, objectives)."""
        rows = [features(*candidate) for candidate in candidates]
        zeros = {objective.name: 0.0 for objective in self.objectives}
        means = np.array([as_costs(self.objectives, {**zeros, **costs}) for _, costs in candidates])
        errors = np.zeros_like(means)
        for column, model in self.models.items():
            means[:, column], errors[:, column] = model.predict(rows)
        return means, errors

    def p_feasible(self, candidates: Sequence[tuple[Genome, Mapping[str, float]]]) -> Array:
        """Return the probabilities that untrained mechanisms miss no gate, (candidates,)."""
        if not self._has_misses or not self.is_informed:
            return np.ones(len(candidates))
        missed, _ = self._misses.predict([features(*candidate) for candidate in candidates])
        return cast("Array", np.clip(1 - missed, 0.0, 1.0))

    def p_non_dominated(self) -> Array:
        """Return the probability of each mechanism in ``known`` to be in the front."""
        if self._p is None:
            means, errors = self.estimates()
            self._p = self._members(means).astype(float)
            if self.is_informed:
                rows = np.flatnonzero(_contenders(means, errors, self._limits))
                keys = [self.known[row].key for row in rows]
                rng = np.random.default_rng(self._num_results)
                drawn = np.repeat(means[None, rows], DRAWS, axis=0)
                for column, model in self.models.items():
                    drawn[:, :, column] = model.draws(keys, DRAWS, rng)
                self._p[:] = 0.0
                self._p[rows] = np.mean([self._members(draw) for draw in drawn], axis=0)
        return self._p

    def _members(self, rows: Array) -> NDArray[np.bool_]:
        return front_members(rows, self._limits)

    def select_reevaluation(self) -> TrialResult | None:
        """Return the mechanism that is most useful to train again; None if none may be trained.

        The usefulness is the probability to be in the front, times the expected reduction of the
        variance of the estimates, relative to the variance of seed noise.
        """
        if not self.is_informed:
            return None
        gain = np.zeros(len(self.known))
        for column, model in self.models.items():
            gain += (self.expected_shift()[:, column] / (model.noise or 1.0)) ** 2
        worth = self.p_non_dominated() * gain
        rows = self.repeatable()
        return self.known[max(rows, key=lambda i: worth[i])] if rows else None

    def repeatable(self) -> list[int]:
        """Return indices of ``known`` mechanisms that may be trained again and are not pending."""
        pending_keys = {proposal.key for proposal in self.pending}
        model = next(iter(self.models.values()))
        return [
            row
            for row, result in enumerate(self.known)
            if result.key not in pending_keys
            and len(model.observed[result.key].scores) < self.most_trainings
        ]

    def expected_shift(self) -> Array:
        """Return standard deviations of the shifts of estimates by one more training of each."""
        shifts = np.zeros_like(self.estimates()[1])
        for column, model in self.models.items():
            variances = self.estimates()[1][:, column] ** 2
            shifts[:, column] = variances / np.sqrt(variances + model.noise**2 + TINY)
        return shifts

    def _learn(self, result: TrialResult, costs: Costs) -> None:
        self._first.setdefault(result.key, result)
        row, is_missed = features(result.genome, result.known_costs), result.costs is None
        self._misses.tell(result.key, row, float(is_missed))
        self._has_misses |= is_missed
        if is_missed:
            return
        for column, model in self.models.items():
            # Scores below chance count as chance: the difference carries no information.
            objective = self.objectives[column]
            worst = objective.as_cost(objective.reference)
            cost = costs[column]
            score, is_censored = min(cost, worst), cost >= worst
            model.tell(result.key, row, score, objectives=costs, is_censored=is_censored)


def _contenders(means: Array, errors: Array, limits: Array) -> NDArray[np.bool_]:
    """Return a mask of the mechanisms whose confidence bounds permit that the front has them."""
    worst = means + FAR * errors
    worst = worst[front_members(worst, limits)]
    best = means - FAR * errors
    is_beaten = np.all(worst <= best[:, None], axis=2) & np.any(worst < best[:, None], axis=2)
    is_contender: NDArray[np.bool_] = ~np.any(is_beaten, axis=1) & np.all(best <= limits, axis=1)
    return is_contender


def front_members(rows: Array, limits: Array) -> NDArray[np.bool_]:
    """Return a mask of the rows inside the limits that no other row inside dominates, (rows,).

    Equal rows do not dominate each other. ``rows`` has the shape (mechanisms, objectives).
    """
    is_member: NDArray[np.bool_] = np.all(rows <= limits, axis=1)
    if is_member.any():
        is_member[is_member] = is_nondominated(rows[is_member], keep_weakly=True)
    return is_member


def gains_of_shifts(
    rows: Array, shifts: Array, indices: Iterable[int]
) -> Iterator[tuple[float, int]]:
    """Yield the expected gain of one more training of some mechanisms, each with its index.

    The gain is the expected increase of the hypervolume of the estimated front when the estimate of
    this mechanism changes and all other estimates stay fixed (knowledge gradient, Frazier et al.
    2009, "The knowledge-gradient policy for correlated normal beliefs"). Mechanisms whose shifted
    estimate is always dominated are left out. ``rows`` are scaled estimates of all mechanisms,
    (mechanisms, objectives), and ``shifts`` the standard deviations of their shifts by a training.
    """
    members = is_nondominated(rows, keep_weakly=True)
    front = rows[members]
    total = _volume(front)
    for i in indices:
        if is_dominated(rows[i] + POINTS[0] * shifts[i], front):
            continue
        # Without a member of the front, mechanisms behind it may enter the front.
        others = non_dominated_rows(np.delete(rows, i, axis=0)) if members[i] else front
        yield _volume(others) + expected_gain(others, rows[i], shifts[i]) - total, i


def non_dominated_rows(rows: Array) -> Array:
    """Return the non-dominated rows; equal rows do not dominate each other."""
    return cast("Array", rows[is_nondominated(rows, keep_weakly=True)])


def is_dominated(row: Array, others: Array) -> bool:
    """Return whether one of the other rows dominates a row, or equals it."""
    return bool((others <= row).all(axis=1).any())


def expected_gain(front: Array, row: Array, spread: Array) -> float:
    """Return the expected hypervolume that a mechanism with uncertain objectives adds to a front.

    ``front``, (mechanisms, objectives), is scaled. The mechanism's scaled objectives are normally
    distributed with the means ``row`` and the standard deviations ``spread``.
    """
    return float(np.mean([_gain(front, row + point * spread) for point in POINTS]))


def _gain(front: Array, row: Array) -> float:
    if (row >= 1).any():
        return 0.0
    return float(np.prod(1 - row)) - _volume(np.maximum(front, row))


def _volume(rows: Array) -> float:
    """Return the hypervolume of rows of scaled objectives, up to the corner 1."""
    inside = rows[(rows < 1).all(axis=1)]
    return float(hypervolume(inside, np.ones(rows.shape[1]))) if len(inside) else 0.0
