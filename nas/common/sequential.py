"""Tests of a difference that are valid after every number of pairs of trainings.

Gains (differences between two trainings that share their seed) are taken as independent and normal,
with unknown mean and variance. An e-value measures the evidence that their mean is positive: a
ratio of two likelihoods of the gains up to scale. In the numerator, mean / standard deviation has a
half-normal prior of scale t; in the denominator it is 0. With
s = (sum of gains) / sqrt(sum of squared gains) and F(n, x) for Student's distribution function with
n degrees of freedom,

    e(n) = 2 / sqrt(1 + n t^2) * (1 - s^2 / (n + t^-2))^(-n/2)
           * F(n, sqrt(n) s / sqrt(n + t^-2 - s^2)).

If the mean is at most 0, the probability that any of e(1), e(2), ... reaches c is at most 1 / c
(Ville's inequality). One may test after each pair and stop whenever one likes. (Lai 1976, "On
confidence sequences"; Wang and Ramdas 2023, "Anytime-valid t-tests and confidence sequences for
Gaussian means with unknown variance", arXiv 2310.03722.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr  # type: ignore[import-untyped]

from nas.common.differences import LEVEL, Side
from nas.common.objectives import Direction

if TYPE_CHECKING:
    Array = NDArray[np.float64]

# Scale of the prior, in standard deviations of a gain. For a mean of 1.4 standard deviations, 1.5
# needs about the fewest pairs; scales from 1 to 2 differ by less than a pair.
SCALE: Final = 1.5


class Decision(NamedTuple):
    """The claim that the evidence permits, and the greatest e-value so far of each claim."""

    side: Side
    better: float
    worse: float


def needed(claims: int) -> float:
    """Return the e-value from which a claim is made about one of ``claims`` mechanisms.

    The probability of any false claim is at most ``LEVEL`` (Bonferroni over 2 * claims tests).
    """
    return 2 * claims / LEVEL


def decide(gains: Sequence[float], direction: Direction, claims: int = 1) -> Decision:
    """Return the claim about the mean of the gains (in the order of seeds), see ``needed``."""
    if not gains:
        return Decision("undecided", 1.0, 1.0)
    better = np.array(gains) if direction == "max" else -np.array(gains)
    most, least = float(evidence(better).max()), float(evidence(-better).max())
    enough = needed(claims)
    side: Side = "better" if most >= enough else "worse" if least >= enough else "undecided"
    return Decision(side, most, least)


def evidence(gains: ArrayLike) -> Array:
    """Return the e-value of the claim that the mean gain is positive, after each gain.

    Gains are (..., pairs), in the order of seeds; so is the result. It is 1 while all gains are 0.
    """
    x = np.asarray(gains, float)
    n = np.arange(1, x.shape[-1] + 1)
    squares = np.cumsum(x**2, axis=-1)
    s = np.cumsum(x, axis=-1) / np.sqrt(np.where(squares > 0, squares, 1.0))
    width = n + SCALE**-2
    logarithm = -0.5 * np.log1p(n * SCALE**2) - n / 2 * np.log1p(-(s**2) / width)
    tail = stdtr(n, np.sqrt(n) * s / np.sqrt(width - s**2))
    e: Array = np.where(squares > 0, 2 * np.exp(np.minimum(logarithm, 700.0)) * tail, 1.0)
    return e


def anytime_interval(gains: ArrayLike, level: float) -> tuple[float, float] | None:
    """Return an interval of the mean gain that is valid after every number of pairs.

    The probability that any of the intervals after 1, 2, ... pairs misses the mean is at most
    ``level``: an interval contains the means for which the average of the e-values of both sides is
    below 1 / ``level``. The result is None for too few gains, or if all gains are equal.
    """
    x = np.asarray(gains, float)
    n, mean, variance = len(x), float(x.mean()), float(x.var())
    ratio = (level / math.sqrt(1 + n * SCALE**2)) ** (2 / n)
    most = (n + SCALE**-2) * (1 - ratio)  # the greatest s^2 of a mean in the interval
    if most >= n or not variance:
        return None
    reach = math.sqrt(most * variance / (n - most))
    return mean - reach, mean + reach
