"""Costs of mechanisms: counts, cache sizes and predicted times."""

from nas.costs.costs import (
    COSTS,
    CostContext,
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
