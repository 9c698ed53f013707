"""Expected gains of hypervolume. Objectives are scaled: ideal values are 0, corners are 1.

The gain of one more training of a known mechanism is the expected increase of the hypervolume of
the estimated front when the estimate of this mechanism changes and all other estimates stay fixed
(knowledge gradient, Frazier et al. 2009, "The knowledge-gradient policy for correlated normal
beliefs").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from moocore import hypervolume, is_nondominated
from numpy.typing import NDArray

if TYPE_CHECKING:
    Array = NDArray[np.float64]

# Seven equally likely points of a standard normal distribution.
POINTS: Final = (-1.47, -0.79, -0.37, 0.0, 0.37, 0.79, 1.47)


def gains_of_shifts(
    rows: Array, shifts: Array, indices: Iterable[int]
) -> Iterator[tuple[float, int]]:
    """Yield the expected gain of a further training of each mechanism, and its index.

    Mechanisms whose shifted estimate is always dominated are left out.

    Args:
        rows: scaled estimates of all mechanisms, (mechanisms, objectives).
        shifts: standard deviations of the shifts of their estimates by a training.
        indices: the mechanisms that may be trained.
    """
    members = is_nondominated(rows, keep_weakly=True)
    front = rows[members]
    total = volume(front)
    for i in indices:
        if is_dominated(rows[i] + POINTS[0] * shifts[i], front):
            continue
        # Without a member of the front, mechanisms behind it may enter the front.
        others = non_dominated_rows(np.delete(rows, i, axis=0)) if members[i] else front
        yield volume(others) + expected_gain(others, rows[i], shifts[i]) - total, i


def non_dominated_rows(rows: Array) -> Array:
    """Return the non-dominated rows; equal rows do not dominate each other."""
    members: Array = rows[is_nondominated(rows, keep_weakly=True)]
    return members


def is_dominated(row: Array, others: Array) -> bool:
    """Return whether one of the other rows dominates a row, or equals it."""
    return bool((others <= row).all(axis=1).any())


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
