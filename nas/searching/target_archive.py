"""The archive of a search with a target task, and the choice of what is trained next.

``known`` contains the mechanisms with short trainings, and ``estimates`` are of their target
qualities (``TargetModel``). The reported front has only mechanisms with target trainings.

The first ``SPREAD`` target trainings, every second proposal, are of mechanisms that are likely in
the front, far from each other in cost. After that, each proposal is the option with the greatest
expected gain of target hypervolume per work: the algorithm's new mechanism on the short task, a
known mechanism's first training under the target task, or one more training of a known mechanism
under either task. The relative work of a target training is a constant, so that proposals do not
depend on measured times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, cast

import numpy as np
from numpy.typing import NDArray

from nas.genome import Genome
from nas.searching.algorithm import Costs, TrialResult
from nas.searching.archive import (
    POINTS,
    Archive,
    expected_gain,
    gains_of_shifts,
    is_dominated,
    non_dominated_rows,
)
from nas.searching.power_transform import Array
from nas.searching.quality_model import features
from nas.searching.target_model import TargetModel
from nas.store.records import Estimate

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
    """The results of a search with a target task, and a model of each metric under both tasks."""

    model_class: ClassVar[type[TargetModel]] = TargetModel

    def __post_init__(self) -> None:
        super().__post_init__()
        self._target_keys: set[str] = set()
        self._shifts: tuple[Array, Array] | None = None

    def tell(self, results: Iterable[TrialResult]) -> None:
        """See `Archive`."""
        self._shifts = None
        super().tell(results)

    def new_posterior(self) -> tuple[list[Estimate], bool]:
        """Return estimates of mechanisms with target trainings; none before models are linked."""
        if not self._is_linked:
            return [], False
        rows = [i for i, result in enumerate(self.known) if result.key in self._target_keys]
        members = self._members(self.estimates()[0][rows]).tolist()
        estimates = zip(self._estimates_of(rows), members, strict=True)
        return [replace(estimate, is_member=is_member) for estimate, is_member in estimates], False

    def repeatable(self) -> list[int]:
        """Return no mechanism, so that algorithms draw new ones: ``best_option`` selects others."""
        return []

    def select_reevaluation(self) -> TrialResult | None:
        """Return the mechanism whose short training helps its target estimates most, or None."""
        rows = super().repeatable() if self.is_informed else []
        if not rows:
            return None
        shifts = (
            self._expected_shifts()[0] if self._is_linked else self.expected_shift() / self.span
        )
        worth = self.p_non_dominated() * (shifts**2).sum(axis=1)
        return self.known[max(rows, key=lambda i: worth[i])]

    def next_spread(self) -> TrialResult | None:
        """Return the next mechanism of the first target trainings, if any.

        It has the greatest product of its probability to be in the front and its distance in rank
        by cost from the mechanisms that are or will be trained under the target task. Its costs
        are within their limits.
        """
        if len(self.known) < FIRST or len(self._with_target) >= SPREAD:
            return None
        trained = self._has_target()
        costs = [i for i, objective in enumerate(self.objectives) if not objective.is_metric]
        within = (self.estimates()[0][:, costs] <= self._limits[costs]).all(axis=1)
        free = within & ~trained
        if not free.any():
            return None
        values = self.estimates()[0][:, costs[0]] if costs else np.zeros(len(self.known))
        ranks = np.unique(values, return_inverse=True)[1] / max(1, len(values) - 1)
        worth = np.maximum(self.p_non_dominated(), 1e-3)
        if trained.any() and len(set(ranks)) > 1:
            worth = worth * np.abs(ranks[:, None] - ranks[trained]).min(axis=1)
        return self.known[max(np.flatnonzero(free), key=lambda i: worth[i])]

    def best_option(self) -> Option | None:
        """Return the training of a known mechanism with the greatest gain per work, if any."""
        if not self._is_linked:
            return None
        options = (option for option in self._options() if option.gain > 0)
        return max(options, key=lambda option: option.gain, default=None)

    def _options(self) -> Iterator[Option]:
        estimates, errors = self.estimates()
        scaled, errors = self.scaled(estimates), errors / self.span
        pending = {proposal.key for proposal in self.pending}
        free = [i for i, result in enumerate(self.known) if result.key not in pending]
        is_target = self._has_target()
        # The gain of a first target training is what the mechanism adds to the reported front.
        reported = non_dominated_rows(scaled[is_target])
        for i in free:
            lowest = scaled[i] + POINTS[0] * errors[i]
            if not is_target[i] and not is_dominated(lowest, reported):
                gain = expected_gain(reported, scaled[i], errors[i]) / self.work_ratio
                yield Option(gain, self.known[i], is_target=True)
        short, target = self._expected_shifts()
        for gain, i in gains_of_shifts(scaled, short, super().repeatable()):
            yield Option(gain, self.known[i], is_target=False)
        for gain, i in gains_of_shifts(scaled, target, free):
            yield Option(gain / self.work_ratio, self.known[i], is_target=True)

    def gain_of(self, genome: Genome, costs: Mapping[str, float]) -> float:
        """Return the expected gain of a short training of an untrained mechanism."""
        means, _ = self.predict([(genome, costs)])
        shift = np.zeros(len(self.objectives))
        for column, model in self._target_models.items():
            shift[column] = model.shifts((), [features(genome, costs)])[0][0]
        front = non_dominated_rows(self.scaled(self.estimates()[0]))
        gain = expected_gain(front, self.scaled(means)[0], shift / self.span)
        return gain * float(self.p_feasible([(genome, costs)])[0])

    @property
    def _target_models(self) -> dict[int, TargetModel]:
        return cast("dict[int, TargetModel]", self.models)

    @property
    def _is_linked(self) -> bool:
        return self.is_informed and all(m.is_linked for m in self._target_models.values())

    @property
    def _with_target(self) -> set[str]:
        return self._target_keys | {str(p.key) for p in self.pending if p.is_target}

    def _has_target(self) -> NDArray[np.bool_]:
        keys = self._with_target
        return np.array([result.key in keys for result in self.known], bool)

    def _learn(self, result: TrialResult, costs: Costs) -> None:
        if not result.is_target:
            super()._learn(result, costs)
            return
        self._target_keys.add(result.key)
        row = features(result.genome, result.known_costs)
        for column, model in self._target_models.items():
            worst = self.objectives[column].as_cost(self.objectives[column].reference)
            model.tell_target(result.key, row, min(costs[column], worst))

    def _expected_shifts(self) -> tuple[Array, Array]:
        if self._shifts is None:
            shifts = np.zeros((2, len(self.known), len(self.objectives)))
            keys = [result.key for result in self.known]
            for column, model in self._target_models.items():
                shifts[:, :, column] = model.shifts(keys)
            self._shifts = shifts[0] / self.span, shifts[1] / self.span
        return self._shifts
