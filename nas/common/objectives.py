"""Metrics of a task, and objectives of a search.

An objective is a metric, which training measures, or a cost, which is counted or predicted without
training. The limits of objectives bound the region of interest: a mechanism that is worse than a
limit is trained and recorded, but it is in no front. This module imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pydantic import ConfigDict

Direction: TypeAlias = Literal["max", "min"]
"""Whether larger ("max") or smaller ("min") values are better."""

QUALITY: Final = "quality"
"""Name of an objective in a space that stands for the first metric of the task."""
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
    """A metric (``is_metric``) or cost that a search optimises.

    ``ideal`` is the best possible value, ``reference`` a metric's value at chance or twice the cost
    of standard attention, ``limit`` the worst value of a mechanism in a front.
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
        """The limit, or else the reference, from which the hypervolume is measured to ``ideal``."""
        return self.reference if self.limit is None else self.limit

    def as_cost(self, value: float) -> float:
        """Return the value, negated if the objective is maximised, so that less is better."""
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
    """Return ``as_costs``; if a value is worse than its limit, infinities, which no front has."""
    costs = as_costs(objectives, values)
    return (math.inf,) * len(costs) if beyond_limits(objectives, values) else costs


def beyond_limits(
    objectives: Sequence[Objective], values: Mapping[str, float]
) -> tuple[Objective, ...]:
    """Return the objectives whose value is worse than their limit."""
    limited = (o for o in objectives if o.limit is not None)
    return tuple(o for o in limited if o.as_cost(values[o.name]) > o.as_cost(o.corner))


def limits_of(objectives: Sequence[Objective]) -> tuple[float, ...]:
    """Return the limits as costs; infinity stands for no limit."""
    return tuple(math.inf if o.limit is None else o.as_cost(o.limit) for o in objectives)
