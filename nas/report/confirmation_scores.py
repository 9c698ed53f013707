"""The recorded trainings of a confirmation, with each mechanism's learning rate if rates are tried.

A part of a confirmation is "search", "long" or "test", see ``ConfirmationStage``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, TypeAlias

from nas.common.differences import gain_of, paired
from nas.common.rates import TunedScores, tune, tuned_difference
from nas.evaluation.trial import Evaluation
from nas.report.run_view import FRESH, spread_answer
from nas.report.trials import why
from nas.searching.confirm import ConfirmationPlan, ConfirmationStage
from nas.store import Run

# Trainings of a mechanism, by learning rate (None if rates are not tried), then by repeat.
Grid: TypeAlias = dict[float | None, dict[int, Evaluation]]


@dataclass(frozen=True)
class ConfirmationScores:
    """The trainings of a confirmation.

    Attributes:
        plan: the plan of the confirmation.
        trained: all trainings by part, then by ``Trial.key`` of the mechanism.
    """

    plan: ConfirmationPlan
    trained: Mapping[str, Mapping[str, Grid]]

    @classmethod
    def read(cls, run: Run, plan: ConfirmationPlan) -> ConfirmationScores:
        """Return the planned trainings that a run has recorded."""
        keys = plan.trained
        trained: dict[str, dict[str, Grid]] = {
            stage.part: {key: defaultdict(dict) for key in keys} for stage in plan.stages
        }
        planned: dict[tuple[str, str], list[ConfirmationStage]] = defaultdict(list)
        for stage in plan.stages:
            planned[stage.stage, stage.fingerprint].append(stage)
        for training in run.trainings("confirm"):
            if training.key in keys and training.repeat < plan.repeats:
                for stage in planned.get((training.stage, training.task), ()):
                    row = trained[stage.part][training.key][stage.learning_rate]
                    row[training.repeat] = training.evaluation
        return cls(plan, trained)

    @cached_property
    def tuned(self) -> dict[tuple[str, str], TunedScores | None]:
        """The chosen learning rates by part and key; None if a training failed at each rate.

        Empty if rates are not tried.
        """
        metric, repeats = self.plan.metric, self.plan.repeats
        return {
            (part, key): tune(
                {rate: _values(row, metric.name) for rate, row in grid.items() if rate is not None},
                repeats,
                metric.direction,
            )
            for part, grids in self.trained.items()
            for key, grid in grids.items()
            if self.plan.rates
        }

    def reported(self, part: str, key: str) -> dict[int, Evaluation]:
        """Return the trainings of a mechanism whose values are reported, by repeat."""
        grid = self.trained[part][key]
        if not self.plan.rates:
            return grid.get(None, {})
        tuned = self.tuned[part, key]
        return {i: grid[tuned.rate][i] for i in tuned.values} if tuned else {}

    def values(self, part: str, key: str, name: str) -> dict[int, float | None]:
        """Return the reported values of a metric, by repeat; None for a failed training."""
        return _values(self.reported(part, key), name)

    def over(self, part: str, key: str, base: str, name: str) -> list[float]:
        """Return the differences of a metric to the mechanism ``base``, between equal seeds."""
        return paired(self.values(part, key, name), self.values(part, base, name))

    def leads(self, key: str, base: str | None) -> dict[str, Any] | None:
        """Return a mechanism's differences to ``base``, as in ``ConfirmRow.over_mha``."""
        if base is None or key == base:
            return None
        leads = {FRESH[part]: self._lead(part, key, base) for part in self.trained}
        return dict.fromkeys(FRESH.values()) | leads

    def rates(self, key: str) -> dict[str, Any] | None:
        """Return a mechanism's learning rates, as in ``ConfirmRow.rates``."""
        if not self.plan.rates:
            return None
        return {FRESH[part]: _rates(self.tuned[part, key]) for part in self.trained}

    def failed(self, key: str) -> dict[str, int]:
        """Return the numbers of a mechanism's failed trainings, by part and reason."""
        return Counter(
            f"{FRESH[part]}: {why(each)}"
            for part, grids in self.trained.items()
            for row in grids[key].values()
            for each in row.values()
            if not each.is_ok
        )

    def tuning(self) -> dict[str, float] | None:
        """Return the cost of trying learning rates, as in ``ConfirmResult.tuning``."""
        if not self.plan.rates:
            return None
        grids = [grid for by_key in self.trained.values() for grid in by_key.values()]
        every = [each for grid in grids for row in grid.values() for each in row.values()]
        shown = [
            each
            for part, by_key in self.trained.items()
            for key in by_key
            for each in self.reported(part, key).values()
        ]
        seconds = [sum(each.core_seconds for each in rows) for rows in (every, shown)]
        return {"trainings": len(every) - len(shown), "core_seconds": seconds[0] - seconds[1]}

    def _lead(self, part: str, key: str, base: str) -> dict[str, Any]:
        metric, tested = self.plan.metric, self._tested(part, key, base)
        gains = self.over(part, key, base, metric.name)
        gain = gain_of(gains, metric.direction, tested.get("p"))
        return spread_answer(gains) | tested | {"verdict": gain and gain.side}

    def _tested(self, part: str, key: str, base: str) -> dict[str, float | None]:
        """Return interval and p-value of a difference at the best rates, if rates are tried."""
        if not self.plan.rates:
            return {}
        first, second = self.tuned[part, key], self.tuned[part, base]
        tested = tuned_difference(first, second, self.plan.metric.direction)
        return {name: (tested or {}).get(name) for name in ("low", "high", "p")}


def _values(trainings: Mapping[int, Evaluation], name: str) -> dict[int, float | None]:
    return {i: each.metrics[name] if each.is_ok else None for i, each in trainings.items()}


def _rates(tuned: TunedScores | None) -> dict[str, Any]:
    if tuned is None:
        return {"chosen": None, "means": {}}
    means = {f"{rate:g}": fmean(values.values()) for rate, values in tuned.by_rate.items()}
    return {"chosen": tuned.rate, "means": means}
