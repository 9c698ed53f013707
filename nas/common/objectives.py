"""Metrics of a task, and the objectives and settings of a search.

An objective is a metric, which training measures, or a cost, which is counted or predicted without
training. A mechanism that is worse than an objective's limit is trained, but it is in no front.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pydantic import ConfigDict

from nas.common.errors import ConfigError

Direction: TypeAlias = Literal["max", "min"]  # larger or smaller values are better

QUALITY: Final = "quality"  # in a space, the objective that stands for the task's first metric
COST_REFERENCE: Final = 2.0  # of a cost, in multiples of the reference's cost
MAX_SEED: Final = 2**63 - 1
MAX_COUNT: Final = 1_000_000
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

    def text(self, value: float) -> str:
        """Return a value as people read it: a fraction in per cent, others in four digits."""
        return f"{100 * value:.1f} %" if self.unit == "fraction" else f"{value:.4g}"


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric (``is_metric``) or cost that a search optimises.

    ``reference`` is a metric's value at chance, or twice the cost of the task's reference;
    ``limit`` is the worst value of a mechanism in a front.
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
    fields = metric.name, metric.direction, metric.unit, metric.about, metric.ideal
    return Objective(*fields, reference=metric.chance, is_metric=True)


def as_costs(objectives: Sequence[Objective], values: Mapping[str, float]) -> tuple[float, ...]:
    """Return the values of objectives, in their order, negated where more is better."""
    return tuple(objective.as_cost(values[objective.name]) for objective in objectives)


def front_costs(objectives: Sequence[Objective], values: Mapping[str, float]) -> tuple[float, ...]:
    """Return ``as_costs``; infinities if a value is worse than its limit."""
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


@dataclass(frozen=True)
class SearchConfig:
    """The settings of a search.

    Proposal t is computed from the results of proposals 0 to t - ``lag``, so that no worker waits
    for the end of a generation; None stands for the lag of the algorithm. The seeds of all
    trainings derive from ``seed``. ConfigError is raised if a number is out of range.
    """

    algorithm: str = "surrogate"
    population: int = 50  # mechanisms that a generation proposes
    generations: int = 50  # with the first; a resumed search may raise the number
    seed: int = 0
    repeats: int = 1  # trainings of each new mechanism, each with its own seed
    lag: int | None = None

    def __post_init__(self) -> None:
        for name in ("population", "generations", "repeats"):
            check_count(name, getattr(self, name))
        if self.lag is not None:
            check_count("lag", self.lag)
        check_count("seed", self.seed, 0, MAX_SEED)


def check_count(name: str, number: int, least: int = 1, most: int = MAX_COUNT) -> None:
    """Raise ConfigError unless a number is from ``least`` to ``most``."""
    if not least <= number <= most:
        expected = f"a number from {least} to {most:,}"
        raise ConfigError(f"{name}: found {number}; expected {expected}.")
