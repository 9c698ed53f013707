"""What a search weighs: metrics that a training measures, costs that are counted or predicted.

A task declares its metrics, `nas.costs` the costs. A space names some of both; what it named is
frozen into the run as objectives, each with the two ends between which its hypervolume is taken.
No torch: a run is read without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Direction: TypeAlias = Literal["max", "min"]

QUALITY: Final = "quality"
"""In a space's list of objectives: the first metric of whatever task it is searched on."""
REGRET: Final = ".regret"
"""Behind the name of one of several tasks: how far a score is from mha's towards ``uniform``'s."""
COST_REFERENCE: Final = 2.0
"""The reference of a cost is this many times what standard attention costs."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that judges a trained model on held-out data.

    Attributes:
        unit: "fraction", "bit", "nat"; a fraction is shown in per cent.
        chance: what a model scores that has learned nothing.
        ideal: what none can exceed.
    """

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
        ideal, reference: the ends of the box that hypervolume is a share of, in its unit: a
            metric's ideal and chance; nothing and twice standard attention's for a cost.
        is_metric: measured by training; else known before.
    """

    name: str
    direction: Direction
    unit: str
    about: str
    ideal: float
    reference: float
    is_metric: bool

    def as_cost(self, value: float) -> float:
        """The value, negated where more is better: lower is better."""
        return -value if self.direction == "max" else value


def of_metric(metric: Metric) -> Objective:
    """A metric as an objective."""
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
    """The values in the objectives' order, lower is better."""
    return tuple(objective.as_cost(values[objective.name]) for objective in objectives)
