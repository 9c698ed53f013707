"""Expected gains of hypervolume. Objectives are scaled: ideal values are 0, corners are 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from moocore import hypervolume
from numpy.typing import NDArray

if TYPE_CHECKING:
    Array = NDArray[np.float64]

# Seven equally likely points of a standard normal distribution.
POINTS: Final = (-1.47, -0.79, -0.37, 0.0, 0.37, 0.79, 1.47)


def expected_gain(front: Array, row: Array, spread: Array) -> float:
    """Return the expected hypervolume that a mechanism with uncertain objectives adds to a front.

    Args:
        front: scaled objectives of other mechanisms, (mechanisms, objectives).
        row: means of the mechanism's scaled objectives, which are normally distributed.
        spread: standard deviations of these objectives.
    """
    return float(np.mean([_gain(front, row + point * spread) for point in POINTS]))


def _gain(front: Array, row: Array) -> float:
    """Return the hypervolume, up to the corner 1, that a row adds to a front."""
    if (row >= 1).any():
        return 0.0
    return float(np.prod(1 - row)) - volume(np.maximum(front, row))


def volume(rows: Array) -> float:
    """Return the hypervolume of rows of scaled objectives, up to the corner 1."""
    inside = rows[(rows < 1).all(axis=1)]
    return float(hypervolume(inside, np.ones(rows.shape[1]))) if len(inside) else 0.0
