"""The archive of a search with a target task, and the choice of what is trained next.

``known`` contains the mechanisms with short trainings, and ``estimates`` are of their target
qualities (``TargetModel``). So every algorithm searches the target task's front. The reported front
contains only mechanisms that were trained under the target task.

The first ``SPREAD`` target trainings, every second proposal, are of mechanisms that are likely in
the front, far from each other in cost. After that, each proposal is the option with the greatest
expected gain of target hypervolume per work: the algorithm's new mechanism on the short task, a
known mechanism's first training under the target task, or one more training of a known mechanism
under either task. A first target training gains what the mechanism is expected to add to the
reported front. Any other gain is the increase of the hypervolume of the estimated front by the
shift of one mechanism's estimate (knowledge gradient, Frazier et al. 2009). The work of a target
training relative to a short training is a constant, so that proposals do not depend on measured
times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from moocore import is_nondominated
from numpy.typing import NDArray

from nas.genome import Genome
from nas.searching.archive import Archive
from nas.searching.gains import POINTS, expected_gain, volume
from nas.searching.quality_model import features
from nas.searching.results import Costs, TrialResult
from nas.searching.target_model import TargetModel
from nas.store.records import Estimate

if TYPE_CHECKING:
    Array = NDArray[np.float64]

SPREAD: Final = 12  # target trainings that are spread over cost
FIRST: Final = 2 * SPREAD  # mechanisms with a short training before the first target training


@dataclass(frozen=True)
class Option:
    """One more training of a known mechanism, and its expected gain per work."""

    gain: float
    result: TrialResult
    is_target: bool


@dataclass
class TargetArchive(Archive):
    """The results of a search with a target task, and a model of each metric under both tasks.

    Attributes:
        work_ratio: work of a target training, where a short training's is 1.
        most_target: maximum number of target trainings of a mechanism.
    """

    work_ratio: float = 1.0
    most_target: float = np.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        self.models: dict[int, TargetModel] = {  # type: ignore[assignment]
            column: TargetModel() for column in self.models
        }
        self._num_target: dict[str, int] = {}
        corner = np.array([o.as_cost(o.corner) for o in self.objectives])
        self._ideal = np.array([o.as_cost(o.ideal) for o in self.objectives])
        self._span = corner - self._ideal
        self._shifts: tuple[Array, Array] | None = None

    def tell(self, results: Iterable[TrialResult]) -> None:
        """Add results of proposals to the archive, see ``Archive.tell``."""
        self._shifts = None
        super().tell(results)

    def twin(self) -> TargetArchive:
        """Return an empty archive that shares the fits. It must receive the same results."""
        twin = TargetArchive(self.objectives, work_ratio=self.work_ratio)
        twin.models = {column: model.twin() for column, model in self.models.items()}
        return twin

    def new_posterior(self) -> tuple[list[Estimate], bool]:
        """Return the estimates of the mechanisms with target trainings, whose front it is.

        There are none until the models are linked to the target task (``TargetModel.is_linked``).
        """
        if not self._is_linked:
            return [], False
        rows = [i for i, result in enumerate(self.known) if result.key in self._num_target]
        members = self._members(self.estimates()[0][rows]).tolist()
        estimates = zip(self._estimates_of(rows), members, strict=True)
        return [replace(estimate, is_member=is_member) for estimate, is_member in estimates], False

    def repeatable(self) -> list[int]:
        """Return no mechanism, so that algorithms draw new ones: ``best_option`` selects others."""
        return []

    def select_reevaluation(self) -> TrialResult | None:
        """Return the mechanism that is most useful to train again under the short task, or None.

        The usefulness is as in ``Archive.select_reevaluation``, of the target estimates.
        """
        rows = super().repeatable() if self.is_informed else []
        if not rows:
            return None
        shifts = (
            self._expected_shifts()[0] if self._is_linked else self.expected_shift() / self._span
        )
        worth = self.p_non_dominated() * (shifts**2).sum(axis=1)
        return self.known[max(rows, key=lambda i: worth[i])]

    def next_spread(self) -> TrialResult | None:
        """Return the next mechanism of the first target trainings; None if there is none.

        It has the greatest product of its probability to be in the front and its distance in cost,
        as ranks, from the mechanisms that are or will be trained under the target task.
        """
        pending = {str(p.key) for p in self.pending if p.is_target}
        trained = {*self._num_target, *pending}
        if len(self.known) < FIRST or len(trained) >= SPREAD:
            return None
        left = [i for i, result in enumerate(self.known) if result.key not in trained]
        if not left:
            return None
        ranks = self._cost_ranks()
        chosen = [ranks[i] for i, result in enumerate(self.known) if result.key in trained]
        worth = np.maximum(self.p_non_dominated(), 1e-3)
        if chosen and len(set(ranks)) > 1:
            worth = worth * np.abs(ranks[:, None] - np.array(chosen)).min(axis=1)
        return self.known[max(left, key=lambda i: worth[i])]

    def may_train(self, key: str, is_target: bool) -> bool:
        """Return whether a mechanism may be trained again under one of the tasks."""
        if is_target:
            return self._num_target.get(key, 0) < self.most_target
        model = next(iter(self.models.values()))
        return len(model.observed[key].scores) < self.most_trainings

    def best_option(self) -> Option | None:
        """Return the training of a known mechanism with the greatest gain per work, or None.

        None is returned until the models are linked to the target task, and if no further training
        has a gain.
        """
        if not self._is_linked:
            return None
        estimates, errors = self.estimates()
        scaled, shifts = self._scaled(estimates), self._expected_shifts()
        members = is_nondominated(scaled, keep_weakly=True)
        total = volume(scaled[members])
        pending = {proposal.key for proposal in self.pending}
        best = self._to_report(scaled, errors / self._span)
        for i, result in enumerate(self.known):
            if result.key in pending:
                continue
            others = np.delete(scaled, i, axis=0) if members[i] else scaled[members]
            for is_target, shift in ((False, shifts[0][i]), (True, shifts[1][i])):
                if not self.may_train(result.key, is_target):
                    continue
                if _is_beaten(scaled[i] + POINTS[0] * shift, others):
                    continue
                gain = volume(others) + expected_gain(others, scaled[i], shift) - total
                gain /= self.work_ratio if is_target else 1.0
                if gain > (best.gain if best else 0.0):
                    best = Option(gain, result, is_target)
        return best

    def _to_report(self, scaled: Array, errors: Array) -> Option | None:
        """Return the first target training of a mechanism with the greatest gain per work, or None.

        The gain is the expected hypervolume that the mechanism adds to the reported front, which
        contains only mechanisms with target trainings.

        Args:
            scaled, errors: estimates of ``known`` and their standard errors, scaled.
        """
        pending = {proposal.key for proposal in self.pending}
        targets = {proposal.key for proposal in self.pending if proposal.is_target}
        is_target = np.array([r.key in targets | self._num_target.keys() for r in self.known])
        reported = scaled[is_target]
        reported = reported[is_nondominated(reported, keep_weakly=True)]
        best: Option | None = None
        for i in np.flatnonzero(~is_target):
            result, lowest = self.known[i], scaled[i] + POINTS[0] * errors[i]
            if result.key in pending or _is_beaten(lowest, reported):
                continue
            gain = expected_gain(reported, scaled[i], errors[i]) / self.work_ratio
            if gain > (best.gain if best else 0.0):
                best = Option(gain, result, is_target=True)
        return best

    def gain_of(self, genome: Genome, costs: Mapping[str, float]) -> float:
        """Return the expected gain of a short training of an untrained mechanism."""
        means, _ = self.predict([(genome, costs)])
        shift = np.zeros(len(self.objectives))
        for column, model in self.models.items():
            shift[column] = model.shifts((), [features(genome, costs)])[0][0]
        front = self._scaled(self.estimates()[0])
        front = front[is_nondominated(front, keep_weakly=True)]
        gain = expected_gain(front, self._scaled(means)[0], shift / self._span)
        return gain * float(self.p_feasible([(genome, costs)])[0])

    @property
    def _is_linked(self) -> bool:
        return self.is_informed and all(model.is_linked for model in self.models.values())

    def _learn(self, result: TrialResult, costs: Costs) -> None:
        if not result.is_target:
            super()._learn(result, costs)
            return
        self._num_target[result.key] = self._num_target.get(result.key, 0) + 1
        row = features(result.genome, result.known_costs)
        for column, model in self.models.items():
            worst = self.objectives[column].as_cost(self.objectives[column].reference)
            model.tell(result.key, row, min(costs[column], worst), is_target=True)

    def _expected_shifts(self) -> tuple[Array, Array]:
        """Return shifts of the scaled estimates of ``known`` by a short and by a target training.

        Returns:
            Standard deviations, two arrays of shape (mechanisms, objectives).
        """
        if self._shifts is None:
            shifts = np.zeros((2, len(self.known), len(self.objectives)))
            keys = [result.key for result in self.known]
            for column, model in self.models.items():
                shifts[:, :, column] = model.shifts(keys)
            self._shifts = shifts[0] / self._span, shifts[1] / self._span
        return self._shifts

    def _cost_ranks(self) -> Array:
        """Return the rank of each mechanism in ``known`` by its first cost, from 0 to 1."""
        costs = [i for i, objective in enumerate(self.objectives) if not objective.is_metric]
        values = self.estimates()[0][:, costs[0]] if costs else np.zeros(len(self.known))
        ranks: Array = np.unique(values, return_inverse=True)[1] / max(1, len(values) - 1)
        return ranks

    def _scaled(self, rows: Array) -> Array:
        """Return objectives scaled so that ideal values are 0 and corners are 1."""
        scaled: Array = (rows - self._ideal) / self._span
        return scaled


def _is_beaten(best: Array, others: Array) -> bool:
    """Return whether one of the other rows dominates a row, or equals it."""
    return bool((others <= best).all(axis=1).any())
