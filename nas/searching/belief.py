"""What is believed of each mechanism's quality, given noisy trainings of some.

A training's score is the mechanism's quality and the noise of its seed. Quality is modelled as a
Gaussian process over the genome's features (Matérn ½, the rough one), and a part of each
mechanism's own that no feature tells. So an estimate leans on the mechanism's own trainings, the
more of them the more, and on what resembles it; what looks best by luck is drawn back. One model
screens proposals, chooses what to train again, and reports.

Good mechanisms lie close together, bad ones far apart: a process that knows one scale alone takes
luck among the best for merit. So the process is one of bent scores (``Bend``), among which the best
lie as far apart as others do and have more noise (warped Gaussian processes, Snelson et al. 2004).
Answers are in the score's own unit.

Rasmussen & Williams 2006, "Gaussian processes for machine learning", chapters 2 and 5. scikit-learn
fits the kernel; the noise comes from mechanisms that were trained several times.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import digamma  # type: ignore[import-untyped]
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from nas.searching.bend import Bend

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Features = Mapping[str, float]

MOST_FITTED: Final = 256  # mechanisms that the kernel is fitted to; estimates rest on all of them
# Noise is known from repeats, and before there are many, from what is usual: a quarter of the
# scores' variance (.22 in attention-bench-quick), which counts as much as so many repeats. The two
# are averaged as logarithms: elsewhere what is usual may be wrong by orders of magnitude.
USUAL_NOISE: Final = 0.25
USUAL_REPEATS: Final = 4
JITTER: Final = 1e-6
LOG: Final = "log "


@dataclass
class Observed:
    """A mechanism that was trained.

    Attributes:
        features: what it is made of.
        scores: one a training.
        is_cut: whether one of them stands for all that is as bad or worse.
    """

    features: Features
    scores: list[float] = field(default_factory=list)
    is_cut: bool = False


@dataclass(frozen=True)
class Kernel:
    """A length in the space of features, and variances.

    Attributes:
        told: of what features tell, of bent scores.
        own: of what is the mechanism's own, of bent scores.
        noise: of one training, in the score's unit squared.
    """

    length: float
    told: float
    own: float
    noise: float


class Belief:
    """A model of one metric: ``tell`` what was measured, then ask."""

    def __init__(self) -> None:
        self._observed: dict[str, Observed] = {}
        self._model: _Model | None = None

    def tell(self, key: str, features: Features, score: float, *, is_cut: bool = False) -> None:
        """Learn the score of one more training of a mechanism.

        Args:
            is_cut: the score is a bound, as of what misses a gate. It tells what to keep away from,
                but nothing of how far apart two trainings of what is good are.
        """
        observed = self._observed.setdefault(key, Observed(features))
        observed.scores.append(score)
        observed.is_cut |= is_cut
        self._model = None

    def trainings(self, key: str) -> int:
        """How many trainings of a mechanism are known."""
        return len(self._observed[key].scores)

    def scores(self, key: str) -> list[float]:
        """The scores of a mechanism's trainings."""
        return list(self._observed[key].scores)

    def features(self, key: str) -> Features:
        """What was told of a mechanism."""
        return self._observed[key].features

    @property
    def kernel(self) -> Kernel:
        """What was fitted."""
        return self._asked().kernel

    @property
    def noise(self) -> float:
        """The standard deviation of one training, in the score's unit."""
        return math.sqrt(self.kernel.noise)

    def estimate(self, keys: Sequence[str]) -> tuple[Array, Array]:
        """Mean and standard error of the quality of mechanisms that were trained."""
        return self._asked().estimate(keys)

    def predict(self, candidates: Sequence[Features]) -> tuple[Array, Array]:
        """Mean and standard error of the quality of others, by their features."""
        return self._asked().predict(candidates)

    def draws(self, keys: Sequence[str], number: int, rng: np.random.Generator) -> Array:
        """Joint draws of the qualities of mechanisms that were trained: (number, keys)."""
        model = self._asked()
        mean, covariance = model.posterior(keys)
        return model.bend.straight(rng.multivariate_normal(mean, covariance, number, method="eigh"))

    def _asked(self) -> _Model:
        if self._model is None:
            self._model = _Model(self._observed)
        return self._model


class _Model:
    """The process, conditioned on what was observed."""

    def __init__(self, observed: Mapping[str, Observed]) -> None:
        found = list(observed.values())
        self._rows = {key: row for row, key in enumerate(observed)}
        self._scale = _log_scales(found)
        self._names = sorted({name for one in found for name in one.features})
        self._x = self._matrix(one.features for one in found)
        means = np.array([math.fsum(one.scores) / len(one.scores) for one in found])
        counts = np.array([len(one.scores) for one in found], float)
        noise = _noise([one for one in found if not one.is_cut] or found)
        self.bend = Bend.fitted(means)
        bent = self.bend.bent(means)
        self._centre = float(bent.mean())
        variances = noise / counts  # of the means; greater on the bent scale where it is steep
        slopes = self.bend.slope(means)
        self.kernel = _fit(self._x, bent, variances * slopes**2, noise)
        self._prior = self._covariance(self._x, self._x) + self.kernel.own * np.eye(len(found))
        self._condition(bent, variances * slopes**2)
        # As steep as at the quality, of which the mean was a first and often lucky guess.
        slopes = self.bend.slope(self.bend.straight(self._centre + self._prior @ self._weights))
        self._condition(bent, variances * slopes**2)

    def _condition(self, bent: Array, variances: Array) -> None:
        """On bent means, given their variances."""
        self._noise = variances + JITTER * self.kernel.told
        self._inverse = np.linalg.inv(self._prior + np.diag(self._noise))
        self._weights = self._inverse @ (bent - self._centre)

    def estimate(self, keys: Sequence[str]) -> tuple[Array, Array]:
        """Mean and standard error of the qualities of mechanisms that were observed."""
        rows = [self._rows[key] for key in keys]
        mean = self._centre + self._prior[rows] @ self._weights
        # With the scores' covariance P + N, what is left is P - P (P + N)⁻¹ P = N - N (P + N)⁻¹ N.
        left = self._noise - self._noise**2 * np.diag(self._inverse)
        return self.bend.moments(mean, np.sqrt(np.maximum(left[rows], 0.0)))

    def posterior(self, keys: Sequence[str]) -> tuple[Array, Array]:
        """Mean and covariance of the bent qualities of mechanisms that were observed."""
        rows = [self._rows[key] for key in keys]
        across = self._prior[rows]
        mean = self._centre + across @ self._weights
        explained = across @ self._inverse @ across.T
        return mean, self._prior[np.ix_(rows, rows)] - explained

    def predict(self, candidates: Sequence[Features]) -> tuple[Array, Array]:
        """Mean and standard error for features that were not observed."""
        unseen = sorted({n for f in candidates for n in f} - set(self._names))
        x = self._matrix(candidates)
        # What no trained mechanism has lies on axes of its own.
        more = np.array([[f.get(name, 0.0) for name in unseen] for f in candidates])
        apart = (more**2).sum(axis=1, keepdims=True) if unseen else 0.0
        squared = _squared_distances(x, self._x) + apart
        across = self.kernel.told * np.exp(-np.sqrt(squared) / self.kernel.length)
        mean = self._centre + across @ self._weights
        explained = ((across @ self._inverse) * across).sum(axis=1)
        left = np.maximum(self.kernel.told + self.kernel.own - explained, 0.0)
        return self.bend.moments(mean, np.sqrt(left))

    def _covariance(self, a: Array, b: Array) -> Array:
        distances = np.sqrt(_squared_distances(a, b))
        found: Array = self.kernel.told * np.exp(-distances / self.kernel.length)
        return found

    def _matrix(self, rows: Iterable[Features]) -> Array:
        return np.array(
            [[f.get(n, 0.0) / self._scale.get(n, 1.0) for n in self._names] for f in rows]
        )


def _squared_distances(a: Array, b: Array) -> Array:
    found: Array = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.maximum(found, 0.0)


def _log_scales(found: Sequence[Observed]) -> dict[str, float]:
    """The spread of each logarithm: counts are small numbers as they are."""
    names = [name for name in found[0].features if name.startswith(LOG)]
    spreads = {name: float(np.std([one.features[name] for one in found])) for name in names}
    return {name: spread for name, spread in spreads.items() if spread > 0}


def _fit(x: Array, bent: Array, variances: Array, noise: float) -> Kernel:
    """The kernel of greatest likelihood, given the variances of bent means and of one training."""
    scale = float(bent.std()) or 1.0
    part = slice(None, None, -(-len(bent) // MOST_FITTED))
    known = variances / scale**2 + JITTER
    shape = ConstantKernel(1.0, (1e-2, 1e2)) * Matern(3.0, (0.3, 100.0), nu=0.5)
    process = GaussianProcessRegressor(shape + WhiteKernel(0.3, (JITTER, 3.0)), alpha=known[part])
    with warnings.catch_warnings():
        # A bound that is reached says that there is nothing to tell apart, which is an answer.
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(x[part], (bent - bent.mean())[part] / scale)
    told, length, own = (float(value) for value in np.exp(process.kernel_.theta))
    return Kernel(length, told * scale**2, own * scale**2, noise)


def _noise(found: Sequence[Observed]) -> float:
    """The variance of a training: of repeats, and what is usual, by their weights."""
    variance = float(np.var([math.fsum(one.scores) / len(one.scores) for one in found]))
    freedom = sum(len(one.scores) - 1 for one in found)
    squares = sum(float(np.var(one.scores)) * len(one.scores) for one in found)
    least = JITTER * variance or JITTER
    usual = math.log(max(USUAL_NOISE * variance, least))
    if not freedom:
        return math.exp(usual)
    # The mean logarithm of squares that add up to so many degrees of freedom, less its bias.
    pooled = math.log(max(squares / 2, least)) - float(digamma(freedom / 2))
    return math.exp((USUAL_REPEATS * usual + freedom * pooled) / (USUAL_REPEATS + freedom))
