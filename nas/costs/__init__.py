"""Costs of mechanisms: counts, cache sizes and predicted times."""

from nas.costs.context import CostContext
from nas.costs.costs import (
    COSTS,
    Cost,
    CostMeasure,
    attention_cost,
    cost_noun,
    cost_title,
    costs_of,
    default_costs,
    need_calibration,
    size_costs,
)

__all__ = [
    "COSTS",
    "Cost",
    "CostContext",
    "CostMeasure",
    "attention_cost",
    "cost_noun",
    "cost_title",
    "costs_of",
    "default_costs",
    "need_calibration",
    "size_costs",
]
