"""Objectives of a search: metrics measured by training, and costs that are counted or predicted.

A task declares metrics, `nas.costs` the costs. A space lists objectives; a run stores them with
their ideal and reference values, between which hypervolume is computed. This module imports no
torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pydantic import ConfigDict

Direction: TypeAlias = Literal["max", "min"]

QUALITY: Final = "quality"
"""In a space's list of objectives: the first metric of the task."""
REGRET: Final = ".regret"
"""Suffix of a task's name in a suite: (mha's score - score) / (mha's score - uniform's score)."""
COST_REFERENCE: Final = 2.0
"""Reference value of a cost, in multiples of standard attention's cost."""
# A reader of records refuses unknown fields and numbers that are not finite.
_STRICT: Final = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Metric:
    """A score of a trained model on held-out data.

    Attributes:
        unit: "fraction", "bit", "nat"; fractions are displayed in per cent.
        chance: the score of an untrained model.
        ideal: the best possible score.
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
        ideal: the best possible value: of a metric its bound, of a cost zero.
        reference: reference point of the hypervolume: of a metric its value at chance, of a cost
            twice the cost of standard attention.
        is_metric: whether training measures it; costs are known before training.
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
        """The value with lower being better: negated if it is maximised."""
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
    """The values in the objectives' order, with lower being better."""
    return tuple(objective.as_cost(values[objective.name]) for objective in objectives)
