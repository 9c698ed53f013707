"""Metrics of a task, and objectives of a search.

An objective is a metric, which training measures, or a cost, which is counted or predicted without
training. A task declares its metrics; `nas.costs` declares the costs. A search space lists the
names of objectives. Each objective has an ideal and a reference value, and may have a limit. The
hypervolume of a front is measured from the limit, or without a limit from the reference value, to
the ideal. The limits of all objectives bound the region of interest: a mechanism that is worse than
a limit is trained and recorded, but it is in no front. This module imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pydantic import ConfigDict

Direction: TypeAlias = Literal["max", "min"]
"""Whether larger ("max") or smaller ("min") values are better; of gains, likewise."""

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
    """A quality of a trained model that is measured on held-out data, such as accuracy.

    ``unit`` is "fraction", "bit" or "nat", ``chance`` the value for an untrained model, ``ideal``
    the best possible value.
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
    """A metric or cost that a search optimises.

    Attributes:
        ideal: best possible value; zero for a cost.
        reference: for a metric its value at chance, for a cost twice the cost of standard
            attention.
        is_metric: whether training measures the objective; a cost is known before training.
        limit: worst value of a mechanism in a front; None if any value is permitted.
    """

    __pydantic_config__ = _STRICT
    name: str
    direction: Direction
    unit: str
    about: str
    ideal: float
    reference: float
    is_metric: bool
    limit: float | None = None

    @property
    def corner(self) -> float:
        """The value from which the hypervolume is measured: the limit, or else the reference."""
        return self.reference if self.limit is None else self.limit

    def as_cost(self, value: float) -> float:
        """Return the value so that less is better: negated if the objective is maximised."""
        return -value if self.direction == "max" else value


def of_metric(metric: Metric) -> Objective:
    """Return the objective that optimises a metric."""
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
    """Return the values of objectives, in their order, negated where more is better."""
    return tuple(objective.as_cost(values[objective.name]) for objective in objectives)


def front_costs(objectives: Sequence[Objective], values: Mapping[str, float]) -> tuple[float, ...]:
    """Return ``as_costs``; all values are infinite if one is worse than its limit.

    Functions of ``nas.common.pareto`` leave infinite rows out of fronts.
    """
    costs = as_costs(objectives, values)
    return (math.inf,) * len(costs) if beyond_limits(objectives, values) else costs


def beyond_limits(
    objectives: Sequence[Objective], values: Mapping[str, float]
) -> tuple[Objective, ...]:
    """Return the objectives whose value is worse than their limit; empty within the region."""
    limited = (o for o in objectives if o.limit is not None)
    return tuple(o for o in limited if o.as_cost(values[o.name]) > o.as_cost(o.corner))


def limits_of(objectives: Sequence[Objective]) -> tuple[float, ...]:
    """Return the limits of objectives as costs; infinity stands for no limit."""
    return tuple(math.inf if o.limit is None else o.as_cost(o.limit) for o in objectives)
