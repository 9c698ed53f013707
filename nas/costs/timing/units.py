"""Fit unit times to the work and the times of mechanisms, and predict times from them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

RIDGE: Final = 0.02
COUNTED: Final = (".macs", ".call")  # kinds in multiply-adds and calls; others in elements


def fitted(rows: Sequence[Mapping[str, float]], times: Sequence[float]) -> dict[str, float]:
    """The unit time of each kind of work: non-negative least squares of relative errors.

    A small ridge penalty shrinks undetermined unit times to zero.
    """
    import numpy as np
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    kinds = sorted({kind for row in rows for kind, amount in row.items() if amount})
    table = np.array([[row.get(kind, 0.0) for kind in kinds] for row in rows])
    relative = table / np.array(times)[:, None]
    scale = relative.max(axis=0)
    drawn = RIDGE * np.eye(len(kinds))
    target = np.concatenate([np.ones(len(rows)), np.zeros(len(kinds))])
    units = nnls(np.vstack([relative / scale, drawn]), target)[0] / scale
    return {kind: float(unit) for kind, unit in zip(kinds, units, strict=True)}


def total(work: Mapping[str, float], units: Mapping[str, float]) -> float:
    """The predicted time of work."""
    return math.fsum(amount * _unit(kind, units) for kind, amount in work.items() if amount)


def _unit(kind: str, units: Mapping[str, float]) -> float:
    """The unit time of a kind; for an unmeasured kind the median of comparable kinds.

    Unmeasured choices of a parameter add nothing.
    """
    if kind in units or "=" in kind:
        return units.get(kind, 0.0)
    like = [unit for name, unit in units.items() if unit and _counted(name) == _counted(kind)]
    return statistics.median(like or units.values())


def _counted(kind: str) -> str:
    return next((end for end in COUNTED if kind.endswith(end)), "")
