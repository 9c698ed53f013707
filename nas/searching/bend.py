"""Scores bent so that they look like draws of a normal, and back.

Yeo & Johnson 2000, "A new family of power transformations to improve normality or symmetry", with
t = (score - centre) / spread:

    z = ((1 + t)^p - 1) / p                    where t >= 0   (log(1 + t) at p = 0)
    z = (1 - (1 - t)^(2 - p)) / (2 - p)        where t < 0    (-log(1 - t) at p = 2)

At p = 1 nothing is bent; above, what is high is drawn apart, and below, what is low.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]
from scipy.special import boxcox, inv_boxcox  # type: ignore[import-untyped]
from scipy.stats import yeojohnson_llf  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

POWERS: Final = (0.0, 2.0)
# Few scores say little of their shape: powers are held to be normal around 1 with this deviation.
USUAL: Final = 0.5
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(9)


@dataclass(frozen=True)
class Bend:
    """A power, and the scores' centre and spread."""

    power: float
    centre: float
    spread: float

    @classmethod
    def fitted(cls, scores: Array) -> Bend:
        """The power that makes these most like draws of a normal."""
        centre = float(scores.mean())
        spread = float(scores.std()) if np.ptp(scores) > 0 else 1.0
        if len(set(scores)) < 3:  # no shape to see
            return cls(1.0, centre, spread)
        t = (scores - centre) / spread

        def cost(power: float) -> float:
            return float((power - 1) ** 2 / (2 * USUAL**2) - yeojohnson_llf(power, t))

        return cls(float(minimize_scalar(cost, bounds=POWERS, method="bounded").x), centre, spread)

    def bent(self, scores: Array) -> Array:
        """Scores on the bent scale."""
        t = (scores - self.centre) / self.spread
        high = boxcox(1 + np.maximum(t, 0), self.power)
        found: Array = high - boxcox(1 + np.maximum(-t, 0), 2 - self.power)
        return found

    def slope(self, scores: Array) -> Array:
        """By how much what is bent grows with the score."""
        t = (scores - self.centre) / self.spread
        power = np.where(t >= 0, self.power - 1, 1 - self.power)
        found: Array = (1 + np.abs(t)) ** power / self.spread
        return found

    def straight(self, bent: Array) -> Array:
        """Back to scores."""
        high = inv_boxcox(np.maximum(bent, 0), self.power)
        t = high - inv_boxcox(np.maximum(-bent, 0), 2 - self.power)
        found: Array = self.centre + self.spread * t
        return found

    def moments(self, mean: Array, deviation: Array) -> tuple[Array, Array]:
        """Mean and deviation of the score, of normals on the bent scale."""
        scores = self.straight(mean[:, None] + deviation[:, None] * NODES)
        weights = WEIGHTS / WEIGHTS.sum()
        means = scores @ weights
        found = np.sqrt(np.maximum((scores - means[:, None]) ** 2 @ weights, 0.0))
        return means, found
