"""What a mechanism costs: counts, caches and predicted time; and decoding it token by token."""

from nas.costs.costs import (
    BYTES_PER_NUMBER,
    COSTS,
    DEFAULT_COSTS,
    Cost,
    CostMeasure,
    Setting,
    attention_cost,
    costs_of,
    dense_plan,
    kv_cache_bytes_per_token,
    summed_layers,
)

__all__ = [
    "BYTES_PER_NUMBER",
    "COSTS",
    "DEFAULT_COSTS",
    "Cost",
    "CostMeasure",
    "Setting",
    "attention_cost",
    "costs_of",
    "dense_plan",
    "kv_cache_bytes_per_token",
    "summed_layers",
]
