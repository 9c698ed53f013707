"""Tests of a difference that are valid after every number of pairs of trainings.

A gain is the difference of a metric between two trainings that share their seed. Gains are taken as
independent and normal, with unknown mean and variance. An e-value of n gains measures the evidence
that their mean is positive. It is a ratio of two likelihoods of the gains up to scale. In the
numerator, mean / standard deviation has a half-normal prior distribution of scale t; in the
denominator it is 0. With s = (sum of gains) / sqrt(sum of squared gains),

    e(n) = 2 / sqrt(1 + n t^2) * (1 - s^2 / (n + t^-2))^(-n/2)
           * F(n, sqrt(n) s / sqrt(n + t^-2 - s^2)),

where F(n, x) is the distribution function of Student's t with n degrees of freedom. If the mean is
0, e(1), e(2), ... is a martingale of mean 1 with respect to the gains up to scale, so the
probability that any e(n) reaches c is at most 1 / c (Ville's inequality). The bound also holds for
a negative mean, because e(n) does not decrease if the same number is added to all gains. One may
therefore test after each pair, stop whenever one likes, and go on later. (Lai 1976, "On confidence
sequences"; Wang and Ramdas 2023, "Anytime-valid t-tests and confidence sequences for Gaussian means
with unknown variance", arXiv 2310.03722.)
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
    """The claim about a mean gain that the evidence so far permits.

    Attributes:
        side: "better", "worse" or "undecided", which does not mean that the mean is 0.
        better, worse: greatest e-value so far of each claim.
    """

    side: Side
    better: float
    worse: float


def needed(claims: int) -> float:
    """Return the e-value from which a claim is made.

    Args:
        claims: number of mechanisms. The probability of any false claim about them is at most
            ``LEVEL`` (Bonferroni's correction over 2 * ``claims`` tests).
    """
    return 2 * claims / LEVEL


def decide(gains: Sequence[float], direction: Direction, claims: int = 1) -> Decision:
    """Return the claim about the mean of the gains, after any number of them.

    Args:
        gains: gains in the order of seeds.
        direction: "max" if a positive gain is better, "min" if a negative gain is better.
        claims: see ``needed``.
    """
    if not gains:
        return Decision("undecided", 1.0, 1.0)
    better = np.array(gains) if direction == "max" else -np.array(gains)
    most, least = float(evidence(better).max()), float(evidence(-better).max())
    enough = needed(claims)
    side: Side = "better" if most >= enough else "worse" if least >= enough else "undecided"
    return Decision(side, most, least)


def evidence(gains: ArrayLike) -> Array:
    """Return the e-value of the claim that the mean gain is positive, after each gain.

    Args:
        gains: gains in the order of seeds, (..., pairs).

    Returns:
        An array of the shape of ``gains``. Gains that are all 0 are no evidence: their e-value
        is 1.
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
    ``level``. An interval contains the means for which the average of the e-values of both sides is
    below 1 / ``level``.

    Args:
        gains: gains in the order of seeds, (pairs,).

    Returns:
        The bounds; None if there are too few gains for finite bounds, or if all gains are equal.
    """
    x = np.asarray(gains, float)
    n, mean, variance = len(x), float(x.mean()), float(x.var())
    ratio = (level / math.sqrt(1 + n * SCALE**2)) ** (2 / n)
    most = (n + SCALE**-2) * (1 - ratio)  # the greatest s^2 of a mean in the interval
    if most >= n or not variance:
        return None
    reach = math.sqrt(most * variance / (n - most))
    return mean - reach, mean + reach
