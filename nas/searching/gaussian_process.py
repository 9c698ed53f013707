"""A Gaussian process over features of genomes, conditioned on scores of trainings.

Quality is the sum of a linear function of the features, a Gaussian process with a Matérn 1/2
kernel, and a residual that no feature explains. The linear part extrapolates: from the effects of
single changes it predicts mechanisms that combine them (main effects). The Matérn part describes
interactions of features. The score of a training is the quality plus noise.

The scores of good mechanisms differ less than those of bad mechanisms. So the process models
transformed scores (``YeoJohnson``; warped Gaussian processes, Snelson et al. 2004).

The process is conditioned on at most ``MOST_CONDITIONED`` mechanisms, since a fit takes cubic time.
The estimate of any other mechanism combines the process's prediction with its own scores.

Rasmussen & Williams 2006, "Gaussian processes for machine learning", chapters 2 and 5. scikit-learn
fits the kernel. The noise is estimated from mechanisms that were trained several times.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

import numpy as np
from moocore import is_nondominated
from scipy.special import digamma  # type: ignore[import-untyped]
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern, WhiteKernel

from nas.searching.power_transform import Array, YeoJohnson

Features: TypeAlias = Mapping[str, float]

MOST_FITTED: Final = 128  # largest number of mechanisms to fit the kernel to
MOST_CONDITIONED: Final = 512  # largest number of mechanisms that the process is conditioned on
# Beyond this number of trainings, the process is fitted again when their number has grown by 5 %.
REFIT_SHARE: Final = 20
# The prior of the noise, as a share of the variance of all scores (.22 in attention-bench-quick),
# and its weight in repeats. Logarithms are averaged: it may be wrong by orders of magnitude.
PRIOR_NOISE: Final = 0.25
PRIOR_REPEATS: Final = 4
JITTER: Final = 1e-6
LENGTHS: Final = (0.3, 100.0)  # bounds of the length scale of the Matérn part
VARIANCES: Final = (1e-3, 1e2)  # bounds of variances, in multiples of the variance of the scores
TINY: Final = 1e-30  # avoids a division by zero
LOG: Final = "log "  # begins the name of a feature that is a logarithm


@dataclass
class Observations:
    """The trainings of a mechanism.

    ``objectives`` are those of the first training, ``scores`` the metric's values in all.
    ``is_censored``: a score was no better than chance; the noise is estimated without it.
    """

    features: Features
    objectives: Sequence[float] = ()
    scores: list[float] = field(default_factory=list)
    is_censored: bool = False

    @property
    def mean(self) -> float:
        """The mean of ``scores``."""
        return math.fsum(self.scores) / len(self.scores)


@dataclass(frozen=True)
class Joint:
    """A joint normal distribution of the transformed qualities of mechanisms."""

    mean: Array
    covariance: Array
    # Inner products of the scaled features about their mean, in units of the mean square distance
    # of the process's mechanisms from this mean.
    linear: Array


@dataclass(frozen=True)
class Kernel:
    """Hyperparameters of the process; variances are of transformed quality, except the noise."""

    length: float  # length scale of the Matérn part in the space of features
    signal_variance: float  # explained by the Matérn part
    linear_variance: float  # explained by the linear part, mean over the mechanisms of the fit
    residual_variance: float  # explained by no feature
    noise: float  # variance of the untransformed score between seeds

    @property
    def jitter(self) -> float:
        """Least variance of transformed quality, so that matrices can be inverted."""
        return JITTER * (self.signal_variance + self.linear_variance)


def num_fitted(count: int) -> int:
    """Return how many of ``count`` trainings the process is fitted to: all, or the last step's."""
    step = MOST_CONDITIONED
    if count <= step:
        return count
    while (following := step + step // REFIT_SHARE) <= count:
        step = following
    return step


class Posterior:
    """The Gaussian process after the trainings of ``observed``, in transformed scores.

    Methods take the present trainings of mechanisms, which may be more than those of the fit. The
    noise of the additional scores is independent, so they are combined with the fit by precision.
    """

    def __init__(self, observed: Mapping[str, Observations]) -> None:
        self.num_trainings = sum(len(row.scores) for row in observed.values())
        all_rows = list(observed.values())
        noise = _noise([row for row in all_rows if not row.is_censored] or all_rows)
        all_means = np.array([row.mean for row in all_rows])
        self.transform = YeoJohnson.fit(all_means)
        self._centre = float(self.transform.transform(all_means).mean())
        keys = _representatives(observed)
        rows = [observed[key] for key in keys]
        self._rows = {key: row for row, key in enumerate(keys)}
        logs = [name for name in rows[0].features if name.startswith(LOG)]
        spreads = {name: float(np.std([row.features[name] for row in rows])) for name in logs}
        self._scale = {name: spread for name, spread in spreads.items() if spread > 0}
        self._names = sorted({name for row in rows for name in row.features})
        self._x = self._matrix([row.features for row in rows])
        self._origin = self._x.mean(axis=0)
        # Mean square of the centred features; 1 if all mechanisms have the same features.
        self._norm = float(((self._x - self._origin) ** 2).sum(axis=1).mean()) or 1.0
        self._counts = np.array([len(row.scores) for row in rows], float)
        means = np.array([row.mean for row in rows])
        transformed = self.transform.transform(means)
        variances = noise / self._counts  # of the means; transformed, they grow with the slope
        slopes = self.transform.derivative(means)
        x = (self._x - self._origin) / math.sqrt(self._norm)
        self.kernel = _fit(x, math.sqrt(self._norm), transformed, variances * slopes**2, noise)
        residual = self.kernel.residual_variance * np.eye(len(rows))
        self._prior = self._covariance(self._x) + residual
        self._condition(transformed, variances * slopes**2)
        # Again, with slopes at the estimated quality, since the mean score is a biased first guess.
        quality = self.transform.inverse(self._centre + self._prior @ self._weights)
        slopes = self.transform.derivative(quality)
        self._condition(transformed, variances * slopes**2)
        self._mean = self._centre + self._prior @ self._weights
        # The posterior covariance P - P (P + N)⁻¹ P of the prior P equals N - N (P + N)⁻¹ N.
        self._variance = self._noise - self._noise**2 * np.diag(self._inverse)

    def _condition(self, transformed: Array, variances: Array) -> None:
        self._noise = variances + self.kernel.jitter
        self._inverse = np.linalg.inv(self._prior + np.diag(self._noise))
        self._weights = self._inverse @ (transformed - self._centre)

    def estimate(self, observed: Mapping[str, Observations]) -> tuple[Array, Array]:
        """Return mean and variance of the qualities of trained mechanisms."""
        return self._updated(observed, *self._before(observed))

    def _before(self, observed: Mapping[str, Observations]) -> tuple[Array, Array]:
        is_fitted = np.array([key in self._rows for key in observed], bool)
        rows = [self._rows[key] for key in observed if key in self._rows]
        means, variances = np.empty((2, len(is_fitted)))
        means[is_fitted], variances[is_fitted] = self._mean[rows], self._variance[rows]
        if not is_fitted.all():
            others = [row.features for key, row in observed.items() if key not in self._rows]
            means[~is_fitted], variances[~is_fitted] = self.predict(others)
        return means, variances

    def _updated(
        self, observed: Mapping[str, Observations], mean: Array, variance: Array
    ) -> tuple[Array, Array]:
        """Return means and variances after the scores that the fit does not contain."""
        rows = [self._rows.get(key) for key in observed]
        used = np.array([0 if row is None else int(self._counts[row]) for row in rows])
        left = np.array([len(o.scores) for o in observed.values()]) - used
        if not left.any():
            return mean, variance
        scores = [o.scores[n:] for o, n in zip(observed.values(), used, strict=True)]
        more = np.array([math.fsum(s) / len(s) if s else 0.0 for s in scores])
        slopes = self.transform.derivative(self.transform.inverse(mean))
        # Precision of the mean of the additional scores; 0 without such scores.
        precision = left / (self.kernel.noise * slopes**2)
        variance = np.maximum(variance, self.kernel.jitter)
        gain = precision * variance / (1 + precision * variance)
        return mean + gain * (self.transform.transform(more) - mean), variance * (1 - gain)

    def draws(
        self, observed: Mapping[str, Observations], number: int, rng: np.random.Generator
    ) -> Array:
        """Return samples of the qualities of trained mechanisms, of shape (number, mechanisms).

        Mechanisms that the process is not conditioned on are independent of all others.
        """
        before = self._before(observed)
        mean, variance = self._updated(observed, *before)
        sample = np.empty((number, len(mean)))
        inside = np.array([key in self._rows for key in observed])
        rows = [self._rows[key] for key in observed if key in self._rows]
        if rows:
            across = self._prior[rows]
            covariance = self._prior[np.ix_(rows, rows)] - across @ self._inverse @ across.T
            # Additional scores shrink the variances; the correlations remain.
            shares = np.maximum(variance, 0.0)[inside] / np.maximum(before[1][inside], TINY)
            shrunk = np.sqrt(np.minimum(shares, 1.0))
            covariance *= shrunk[:, None] * shrunk
            sample[:, inside] = rng.multivariate_normal(
                mean[inside], covariance, number, method="eigh"
            )
        if not inside.all():
            drawn = rng.standard_normal((number, int((~inside).sum())))
            sample[:, ~inside] = mean[~inside] + drawn * np.sqrt(np.maximum(variance[~inside], 0.0))
        return sample

    def joint(
        self, observed: Mapping[str, Observations], candidates: Sequence[Features] = ()
    ) -> Joint:
        """Return the joint distribution of the qualities of trained, then untrained mechanisms."""
        features = [*(row.features for row in observed.values()), *candidates]
        seen, more = self._matrix(features), self._unseen(features)
        across = self._covariance(seen, (more**2).sum(axis=1))
        for row, key in enumerate(observed):
            if (column := self._rows.get(key)) is not None:
                across[row, column] += self.kernel.residual_variance
        residual = self.kernel.residual_variance * np.eye(len(features))
        centred = np.hstack([seen - self._origin, more])
        linear = centred @ centred.T / self._norm
        distances = np.sqrt(_squared_distances(centred, centred))
        matern = self.kernel.signal_variance * np.exp(-distances / self.kernel.length)
        prior = matern + self.kernel.linear_variance * linear + residual
        covariance = prior - across @ self._inverse @ across.T
        mean, num = self._centre + across @ self._weights, len(observed)
        before = np.maximum(np.diag(covariance)[:num], TINY)
        mean[:num], variance = self._updated(observed, mean[:num], before)
        shrunk = np.append(
            np.sqrt(np.minimum(variance / before, 1.0)), np.ones(len(features) - num)
        )
        return Joint(mean, covariance * shrunk[:, None] * shrunk, linear)

    def predict(self, candidates: Sequence[Features]) -> tuple[Array, Array]:
        """Return mean and variance of the qualities of untrained mechanisms."""
        x, apart = self._matrix(candidates), (self._unseen(candidates) ** 2).sum(axis=1)
        across = self._covariance(x, apart)
        mean = self._centre + across @ self._weights
        explained = ((across @ self._inverse) * across).sum(axis=1)
        squares = ((x - self._origin) ** 2).sum(axis=1) + apart
        linear = self.kernel.linear_variance * squares / self._norm
        total = self.kernel.signal_variance + linear + self.kernel.residual_variance
        return mean, np.maximum(total - explained, 0.0)

    def _covariance(self, x: Array, apart: Array | float = 0.0) -> Array:
        """Return covariances of mechanisms with those of the fit, without residuals.

        ``x`` are scaled features, ``apart`` squared norms of the features that the fit lacks.
        """
        squared = _squared_distances(x, self._x) + np.reshape(apart, (-1, 1))
        matern = self.kernel.signal_variance * np.exp(-np.sqrt(squared) / self.kernel.length)
        linear = (x - self._origin) @ (self._x - self._origin).T / self._norm
        return cast("Array", matern + self.kernel.linear_variance * linear)

    def _unseen(self, rows: Sequence[Features]) -> Array:
        """Return the features that no mechanism of the fit has, (mechanisms, features)."""
        names = sorted({name for row in rows for name in row} - set(self._names))
        values = np.array([[row.get(name, 0.0) for name in names] for row in rows])
        return values.reshape(len(rows), len(names))

    def _matrix(self, rows: Sequence[Features]) -> Array:
        columns = {name: column for column, name in enumerate(self._names)}
        x = np.zeros((len(rows), len(columns)))
        for row, counts in enumerate(rows):
            for name, value in counts.items():
                if (column := columns.get(name)) is not None:
                    x[row, column] = value / self._scale.get(name, 1.0)
        return x


def _representatives(observed: Mapping[str, Observations]) -> list[str]:
    """Return the keys of at most ``MOST_CONDITIONED`` mechanisms, in the order of their trainings.

    Half of them are those of the first non-dominated fronts. The others are evenly spaced over all
    other mechanisms: without them, mechanisms far from the front would be overestimated.
    """
    keys = list(observed)
    if len(keys) <= MOST_CONDITIONED:
        return keys
    rows = np.array([o.objectives or (o.mean,) for o in observed.values()])
    half = MOST_CONDITIONED // 2
    chosen, left = np.array([], int), np.arange(len(keys))
    while len(chosen) < half:
        is_member = is_nondominated(rows[left], keep_weakly=True)
        chosen, left = np.append(chosen, left[is_member]), left[~is_member]
    left = np.append(chosen[half:], left)
    spaced = left[np.linspace(0, len(left) - 1, MOST_CONDITIONED - half).astype(int)]
    return [keys[i] for i in sorted([*chosen[:half], *spaced])]


def _squared_distances(a: Array, b: Array) -> Array:
    squared: Array = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.maximum(squared, 0.0)


def _fit(x: Array, unit: float, transformed: Array, variances: Array, noise: float) -> Kernel:
    """Return the kernel of greatest likelihood.

    Args:
        x: centred features in multiples of ``unit``, (mechanisms, features); mean square 1.
        unit: unit of ``x`` in scaled features, the unit of the length scale.
        transformed: transformed mean scores.
        variances: variances of the transformed mean scores due to seeds.
        noise: variance of the score of one training due to its seed.
    """
    scale = float(transformed.std()) or 1.0
    subset = slice(None, None, -(-len(transformed) // MOST_FITTED))
    alpha = variances / scale**2 + JITTER
    lengths = (LENGTHS[0] / unit, LENGTHS[1] / unit)
    matern = ConstantKernel(1.0, VARIANCES) * Matern(math.sqrt(math.prod(lengths)), lengths, nu=0.5)
    linear = ConstantKernel(1.0, VARIANCES) * DotProduct(0.0, "fixed")
    residual = WhiteKernel(0.3, (JITTER, 3.0))
    process = GaussianProcessRegressor(matern + linear + residual, alpha=alpha[subset])
    with warnings.catch_warnings():
        # A parameter at its bound means that features distinguish nothing, a valid result.
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(x[subset], (transformed - transformed.mean())[subset] / scale)
    signal, length, slope, rest = (float(value) for value in np.exp(process.kernel_.theta))
    square = scale**2
    return Kernel(length * unit, signal * square, slope * square, rest * square, noise)


def _noise(rows: Sequence[Observations]) -> float:
    """Return an estimate of the variance of a training's score due to its seed."""
    variance = float(np.var([row.mean for row in rows]))
    freedom = sum(len(row.scores) - 1 for row in rows)
    squares = sum(float(np.var(row.scores)) * len(row.scores) for row in rows)
    least = JITTER * variance or JITTER
    prior = math.log(max(PRIOR_NOISE * variance, least))
    if not freedom:
        return math.exp(prior)
    # The logarithm of the pooled variance with these degrees of freedom, corrected for bias.
    pooled = math.log(max(squares / 2, least)) - float(digamma(freedom / 2))
    return math.exp((PRIOR_REPEATS * prior + freedom * pooled) / (PRIOR_REPEATS + freedom))
