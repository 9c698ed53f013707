"""Predict the time of mechanisms from unit times that ``calibrate`` measured.

The time of a layer is the sum of its amounts of work, each times the unit time of its kind.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from nas.compiler import Plan
from nas.costs.context import CostContext
from nas.costs.timing.work import amounts

_RIDGE: Final = 0.02


def layer_ms(plan: Plan, context: CostContext) -> float:
    """Predict the milliseconds of an attention layer for one training batch.

    Raises:
        ConfigError: the context has no valid calibration.
        GenomeError: the mechanism does not exist at these sizes.
    """
    calibration = context.unit_times
    work = amounts(plan, context.sizes, calibration.batch, is_causal=context.is_causal)
    units = calibration.units
    return math.fsum(amount * _unit(kind, units) for kind, amount in work.items() if amount)


def fitted(rows: Sequence[Mapping[str, float]], times: Sequence[float]) -> dict[str, float]:
    """Fit the unit time of each kind of work: non-negative least squares of relative errors.

    A small ridge penalty shrinks undetermined unit times to zero. Each row is the work of a timed
    mechanism by kind.
    """
    import numpy as np
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    kinds = sorted({kind for row in rows for kind, amount in row.items() if amount})
    table = np.array([[row.get(kind, 0.0) for kind in kinds] for row in rows])
    relative = table / np.array(times)[:, None]
    scale = relative.max(axis=0)
    ridge = _RIDGE * np.eye(len(kinds))
    target = np.concatenate([np.ones(len(rows)), np.zeros(len(kinds))])
    units = nnls(np.vstack([relative / scale, ridge]), target)[0] / scale
    return {kind: float(unit) for kind, unit in zip(kinds, units, strict=True)}


def _unit(kind: str, units: Mapping[str, float]) -> float:
    """Return the unit time of a kind of work; if not measured, the median unit time of its like."""
    if kind in units:
        return units[kind]
    is_macs = kind.endswith(".macs")
    like = [unit for name, unit in units.items() if unit and name.endswith(".macs") == is_macs]
    return statistics.median(like or units.values())
