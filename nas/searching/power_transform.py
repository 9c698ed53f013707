"""A power transform that makes the distribution of scores approximately normal.

Yeo & Johnson 2000, "A new family of power transformations to improve normality or symmetry", with
t = (score - centre) / spread:

    z = ((1 + t)^p - 1) / p                    where t >= 0   (log(1 + t) at p = 0)
    z = (1 - (1 - t)^(2 - p)) / (2 - p)        where t < 0    (-log(1 - t) at p = 2)

p = 1 is the identity. p > 1 spreads high scores, p < 1 spreads low scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]
from scipy.special import boxcox, inv_boxcox  # type: ignore[import-untyped]
from scipy.stats import yeojohnson_llf  # type: ignore[import-untyped]

Array: TypeAlias = NDArray[np.float64]

POWERS: Final = (0.0, 2.0)
# Standard deviation of the normal prior of powers around 1.
PRIOR_DEVIATION: Final = 0.5
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(9)


@dataclass(frozen=True)
class YeoJohnson:
    """A fitted transform, with mean (``centre``) and deviation (``spread``) of the scores."""

    power: float
    centre: float
    spread: float

    @classmethod
    def fit(cls, scores: Array) -> YeoJohnson:
        """Return the transform with the most probable power, of normal prior around 1."""
        centre = float(scores.mean())
        spread = float(scores.std()) if np.ptp(scores) > 0 else 1.0
        if len(set(scores)) < 3:  # too few to fit a power
            return cls(1.0, centre, spread)
        t = (scores - centre) / spread

        def cost(power: float) -> float:
            return float((power - 1) ** 2 / (2 * PRIOR_DEVIATION**2) - yeojohnson_llf(power, t))

        return cls(float(minimize_scalar(cost, bounds=POWERS, method="bounded").x), centre, spread)

    def transform(self, scores: Array) -> Array:
        """Return transformed scores."""
        t = (scores - self.centre) / self.spread
        high = boxcox(1 + np.maximum(t, 0), self.power)
        return cast("Array", high - boxcox(1 + np.maximum(-t, 0), 2 - self.power))

    def derivative(self, scores: Array) -> Array:
        """Return the derivative of ``transform`` at each score."""
        t = (scores - self.centre) / self.spread
        power = np.where(t >= 0, self.power - 1, 1 - self.power)
        return (1 + np.abs(t)) ** power / self.spread

    def inverse(self, transformed: Array) -> Array:
        """Return the scores of which ``transform`` gives these values."""
        high = inv_boxcox(np.maximum(transformed, 0), self.power)
        t = high - inv_boxcox(np.maximum(-transformed, 0), 2 - self.power)
        return cast("Array", self.centre + self.spread * t)

    def moments(self, mean: Array, deviation: Array) -> tuple[Array, Array]:
        """Return moments of scores whose transformed values have these means and deviations."""
        scores = self.inverse(mean[:, None] + deviation[:, None] * NODES)
        weights = WEIGHTS / WEIGHTS.sum()
        means = scores @ weights
        deviations = np.sqrt(np.maximum((scores - means[:, None]) ** 2 @ weights, 0.0))
        return means, deviations
