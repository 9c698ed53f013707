"""A model of the qualities of mechanisms under a short task and under a longer target task.

The model is autoregressive (Kennedy & O'Hagan 2000, "Predicting the output from a complex computer
code when fast approximations are available", eq. 1). With transformed scores of both tasks, the
target quality t of a mechanism with the features x and the short quality s is

    t = a + rho s + delta(x) + e

a has the prior N(0, ``OFFSET``), delta is a Gaussian process with the covariance v R, where R is
the linear kernel of the features (``Joint.linear``), and e is a residual with the variance r. A
training's score is the quality plus noise, whose variance differs between the tasks.

Every target training is of a mechanism that is trained under the short task, too. Therefore the
joint posterior is computed in two steps (Le Gratiet & Garnier 2014, "Recursive co-kriging model").
The first step conditions on the short scores y: s | y ~ N(m, C). Before the target scores, the
target qualities of mechanisms A and B have

    E[t_A | y] = rho m_A        T_AB = Cov[t_A, t_B | y] = OFFSET + rho² C_AB + v R_AB + r I_AB

The second step conditions on the mean target scores z of the mechanisms L that were trained under
the target task, whose noise has the diagonal covariance N:

    E[t_A | y, z]        = rho m_A + T_AL (T_LL + N)⁻¹ (z - rho m_L)
    Cov[t_A, t_B | y, z] = T_AB - T_AL (T_LL + N)⁻¹ T_LB

Cov[s_A, t_B | y] is rho C_AB, from which one more short training's effect on t follows.

The hyperparameters have the greatest posterior density given z. Their priors (``PRIORS``) keep the
model close to t = a + rho s + e while target trainings are few.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.linalg import cho_factor, cho_solve  # type: ignore[import-untyped]
from scipy.optimize import minimize  # type: ignore[import-untyped]

from nas.searching.gaussian_process import JITTER, Features, Joint, Observations, Posterior
from nas.searching.power_transform import Array, YeoJohnson
from nas.searching.quality_model import NoisyGP

OFFSET: Final = 4.0  # prior variance of a; transformed target scores have a variance of about 1
# Mean and standard deviation of the normal priors of rho, per standard deviation of m, and of the
# logarithms of v, of r, and of the noise's variance relative to the short task's.
PRIORS: Final = ((1.0, 0.5), (math.log(0.03), 0.7), (math.log(0.1), 1.0), (math.log(0.5), 0.7))
FEWEST: Final = 8  # mechanisms with target trainings that are needed to fit the model
LEAST: Final = 1e-4  # least variance v or r


@dataclass(frozen=True)
class Link:
    """Hyperparameters of the target quality, given the short quality (see the module docstring)."""

    rho: float
    delta_variance: float  # v
    residual_variance: float  # r
    noise: float  # variance of the untransformed score between seeds

    def covariance(self, joint: Joint, same: Array) -> Array:
        """Return T of the module docstring; ``same`` is I."""
        features = self.rho**2 * joint.covariance + self.delta_variance * joint.linear
        return OFFSET + features + self.residual_variance * same


@dataclass(frozen=True)
class TargetJoint:
    """The joint posterior of the target qualities t and the short qualities s of mechanisms."""

    mean: Array  # of t
    covariance: Array  # of t
    across: Array  # Cov[s_A, t_B]
    short: Array  # covariance of s
    short_mean: Array


class TargetPosterior:
    """The posterior of target qualities; each mechanism of ``target`` is in ``observed``, too."""

    def __init__(
        self,
        short: Posterior,
        observed: Mapping[str, Observations],
        target: Mapping[str, Observations],
    ) -> None:
        self._short = short
        self._known = {key: observed[key] for key in target}
        means = np.array([row.mean for row in target.values()])
        counts = np.array([len(row.scores) for row in target.values()], float)
        self.transform = YeoJohnson.fit(means)
        joint, z = short.joint(self._known), self.transform.transform(means)
        slopes = self.transform.derivative(means)
        squares = sum(float(np.var(row.scores)) * len(row.scores) for row in target.values())
        self.link = _fit(
            joint, z, slopes**2 / counts, short.kernel.noise, squares, float((counts - 1).sum())
        )
        self._condition(joint, z, self.link.noise * slopes**2 / counts)
        # Again, with slopes at the estimated quality, since the mean score is a biased first guess.
        quality = z - self._noise * self._weights
        slopes = self.transform.derivative(self.transform.inverse(quality))
        self._condition(joint, z, self.link.noise * slopes**2 / counts)

    def _condition(self, joint: Joint, z: Array, noise: Array) -> None:
        covariance = self.link.covariance(joint, np.eye(len(z)))
        self._noise = noise + JITTER
        self._factor = cho_factor(covariance + np.diag(self._noise))
        self._weights: Array = cho_solve(self._factor, z - self.link.rho * joint.mean)

    def joint(
        self, observed: Mapping[str, Observations], candidates: Sequence[Features] = ()
    ) -> TargetJoint:
        """Return the joint distribution of both qualities of trained, then untrained mechanisms."""
        # The mechanisms with target trainings come first.
        rest = {key: row for key, row in observed.items() if key not in self._known}
        joint = self._short.joint(self._known | rest, candidates)
        num, keys = len(self._known), [*self._known, *rest]
        prior = self.link.covariance(joint, np.eye(len(joint.mean)))
        gain = cho_solve(self._factor, prior[:num]).T  # T_AL (T_LL + N)⁻¹
        mean = self.link.rho * joint.mean + prior[:, :num] @ self._weights
        covariance = prior - gain @ prior[:num]
        # Cov[s_A, t_B | y, z] = rho C_AB - rho C_AL (T_LL + N)⁻¹ T_LB
        across = self.link.rho * (joint.covariance - joint.covariance[:, :num] @ gain.T)
        shift = self.link.rho * joint.covariance[:num]
        short = joint.covariance - shift.T @ cho_solve(self._factor, shift)
        short_mean = joint.mean + shift.T @ self._weights
        rows = {key: row for row, key in enumerate(keys)}
        order = [*(rows[key] for key in observed), *range(len(keys), len(joint.mean))]
        chosen = np.ix_(order, order)
        covariances = covariance[chosen], across[chosen], short[chosen]
        return TargetJoint(mean[order], *covariances, short_mean[order])


class TargetModel(NoisyGP):
    """A model of a metric under both tasks, whose estimates are of target qualities.

    Until ``FEWEST`` mechanisms have target trainings, estimates are of short qualities.
    ``observed`` and ``posterior`` are of the short task; ``target`` has the target trainings.
    """

    def __init__(self, fits: dict[int, Posterior] | None = None) -> None:
        super().__init__(fits)
        self.target: dict[str, Observations] = {}
        self._linked: TargetPosterior | None = None

    @property
    def is_linked(self) -> bool:
        """Whether enough mechanisms have target trainings to model the target task."""
        return len(self.target) >= FEWEST

    @property
    def linked(self) -> TargetPosterior:
        """The process of both tasks, after all trainings."""
        if self._linked is None:
            self._linked = TargetPosterior(self.posterior, self.observed, self.target)
        return self._linked

    def tell(self, *training: Any, **options: Any) -> None:
        """Add one short training of a mechanism, see `NoisyGP`."""
        self._linked = None
        super().tell(*training, **options)

    def tell_target(self, key: str, features: Features, score: float) -> None:
        """Add one target training of a mechanism."""
        self._linked = None
        self.target.setdefault(key, Observations(features)).scores.append(score)

    def estimate(self, keys: Sequence[str]) -> tuple[Array, Array]:
        """See `NoisyGP`."""
        if not self.is_linked:
            return super().estimate(keys)
        return self._moments(self.linked.joint({key: self.observed[key] for key in keys}))

    def predict(self, candidates: Sequence[Features]) -> tuple[Array, Array]:
        """See `NoisyGP`."""
        if not self.is_linked:
            return super().predict(candidates)
        return self._moments(self.linked.joint({}, candidates))

    def draws(self, keys: Sequence[str], number: int, rng: np.random.Generator) -> Array:
        """See `NoisyGP`."""
        if not self.is_linked:
            return super().draws(keys, number, rng)
        joint = self.linked.joint({key: self.observed[key] for key in keys})
        sample = rng.multivariate_normal(joint.mean, joint.covariance, number, method="eigh")
        return self.linked.transform.inverse(sample)

    def shifts(
        self, keys: Sequence[str], candidates: Sequence[Features] = ()
    ) -> tuple[Array, Array]:
        """Return how far one more training may shift the target estimate of each mechanism.

        The untrained ``candidates`` follow the known mechanisms. The values are standard deviations
        of the shift by a short training, and by a target training, in the metric's unit.
        """
        linked, short = self.linked, self.posterior
        joint = linked.joint({key: self.observed[key] for key in keys}, candidates)
        slope = linked.transform.derivative(linked.transform.inverse(joint.mean))
        own = np.maximum(np.diag(joint.covariance), 0.0)
        by_target = own / np.sqrt(own + linked.link.noise * slope**2)
        short_slope = short.transform.derivative(short.transform.inverse(joint.short_mean))
        variance = np.maximum(np.diag(joint.short), 0.0) + short.kernel.noise * short_slope**2
        by_short = np.abs(np.diag(joint.across)) / np.sqrt(variance)
        return by_short / slope, by_target / slope

    def _moments(self, joint: TargetJoint) -> tuple[Array, Array]:
        deviation = np.sqrt(np.maximum(np.diag(joint.covariance), 0.0))
        return self.linked.transform.moments(joint.mean, deviation)


def _fit(
    joint: Joint, z: Array, scales: Array, noise: float, squares: float, freedom: float
) -> Link:
    """Return the hyperparameters of greatest posterior density.

    Args:
        joint: short qualities of the mechanisms with target trainings.
        z: transformed mean target scores.
        scales: variances of the transformed mean scores relative to the noise's variance.
        noise: variance of a short training's score due to its seed, in the metric's unit.
        squares: sum of squared deviations of target scores from their mechanism's mean.
        freedom: degrees of freedom of ``squares``.
    """
    unit = float(z.std() / joint.mean.std()) if joint.mean.std() > 0 and z.std() > 0 else 1.0
    same = np.eye(len(z))

    def link(theta: Array) -> Link:
        rho, delta, residual, log_noise = theta
        return Link(rho * unit, math.exp(delta), math.exp(residual), noise * math.exp(log_noise))

    def cost(theta: Array) -> float:
        now, log_noise = link(theta), theta[3]
        factor = cho_factor(
            now.covariance(joint, same) + np.diag(now.noise * scales + JITTER), lower=True
        )
        rest = z - now.rho * joint.mean
        fit = 0.5 * rest @ cho_solve(factor, rest) + float(np.log(np.diag(factor[0])).sum())
        repeats = 0.5 * (squares / now.noise + freedom * log_noise)
        priors = zip(theta, PRIORS, strict=True)
        prior = sum(0.5 * ((value - mean) / spread) ** 2 for value, (mean, spread) in priors)
        return float(fit + repeats + prior)

    low = math.log(LEAST)
    start = np.array([mean for mean, _ in PRIORS])
    bounds = [(0.0, 3.0), (low, 1.0), (low, 1.0), (-3.0, 3.0)]
    return link(minimize(cost, start, method="L-BFGS-B", bounds=bounds).x)
