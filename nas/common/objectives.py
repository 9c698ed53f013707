"""Metrics of a task, and objectives of a search.

An objective is a metric, which training measures, or a cost, which is counted or predicted without
training. A task declares its metrics; `nas.costs` declares the costs. A search space lists the
names of objectives. A run stores each objective with its ideal and reference values, between which
the hypervolume is computed. This module imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pydantic import ConfigDict

Direction: TypeAlias = Literal["max", "min"]

QUALITY: Final = "quality"
"""Name of an objective in a space that stands for the first metric of the task."""
REGRET: Final = ".regret"
"""Suffix of metric names in a suite of tasks, after a task's name.

The metric is (mha's score - score) / (mha's score - uniform's score) in that task.
"""
COST_REFERENCE: Final = 2.0
"""Reference value of a cost, in multiples of standard attention's cost."""
# A reader of records refuses unknown fields and numbers that are not finite.
_STRICT: Final = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Metric:
    """A score of a trained model on held-out data.

    Attributes:
        unit: "fraction", "bit" or "nat"; fractions are displayed in per cent.
        direction: "max" if larger scores are better, else "min".
        chance: score of an untrained model.
        ideal: best possible score.
        about: description in a line.
    """

    __pydantic_config__ = _STRICT
    name: str
    unit: str
    direction: Direction
    chance: float
    ideal: float
    about: str = ""


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric or cost that a run optimises.

    Attributes:
        direction: "max" if larger values are better, else "min".
        unit: unit of the value, such as "fraction" or "ms".
        about: description in a line.
        ideal: best possible value; zero for a cost.
        reference: coordinate of the hypervolume's reference point: for a metric its value at
            chance, for a cost twice the cost of standard attention.
        is_metric: whether training measures the objective; a cost is known before training.
    """

    __pydantic_config__ = _STRICT
    name: str
    direction: Direction
    unit: str
    about: str
    ideal: float
    reference: float
    is_metric: bool

    def as_cost(self, value: float) -> float:
        """Return the value, negated if the objective is maximised, so that less is better."""
        return -value if self.direction == "max" else value


def of_metric(metric: Metric) -> Objective:
    """Return a metric as an objective."""
    return Objective(
        name=metric.name,
        direction=metric.direction,
        unit=metric.unit,
        about=metric.about,
        ideal=metric.ideal,
        reference=metric.chance,
        is_metric=True,
    )


def as_costs(objectives: Sequence[Objective], values: Mapping[str, float]) -> tuple[float, ...]:
    """Return the values in the order of the objectives, negated where more is better."""
    return tuple(objective.as_cost(values[objective.name]) for objective in objectives)
