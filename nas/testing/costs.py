"""Promises of every cost, which is a number that a search can minimise."""

from __future__ import annotations

import math
from typing import Final

from nas.costs import COSTS, CostContext
from nas.genome.mechanisms import MECHANISMS
from nas.testing.algorithms import SIZES
from nas.testing.promises import Promise, keep, require

_CONTEXTS: Final = (
    CostContext(SIZES, False, False, {}),
    CostContext(SIZES, True, True, {}, context=100),
)


def check_cost(name: str) -> None:
    """Check a cost that needs no measured unit times against the promises of its family.

    Raises:
        AssertionError: a promise is broken; the message names it.
        ConfigError: there is no such cost.
    """
    COSTS.get(name)
    keep(f"the cost {name}", PROMISES, name)


def is_described(name: str) -> None:
    """The cost has its name, a unit and a description."""
    cost = COSTS.get(name)
    require(cost.name == name, f"it is called {cost.name}")
    require(cost.unit, "it has no unit")
    require(cost.about, "it has no description")


def is_a_number(name: str) -> None:
    """The cost is finite, not negative, and equal when computed again."""
    cost = COSTS.get(name)
    for context in _CONTEXTS:
        for mechanism in (MECHANISMS["mha"], MECHANISMS["uniform"], MECHANISMS["gqa"]):
            resolved = context.resolve(mechanism.genome)
            first, second = (float(cost.of(resolved, context)) for _ in range(2))
            require(math.isfinite(first) and first >= 0, f"{first} for {mechanism.name}")
            require(first == second, f"{first}, then {second} for {mechanism.name}")


PROMISES: Final[tuple[Promise, ...]] = (is_described, is_a_number)
