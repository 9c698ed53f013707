"""Effective speed-ups, estimated from trainings at several sizes, with confidence intervals.

The reference's loss follows a law of its compute C (Kaplan et al. 2020, Hoffmann et al. 2022):

    L(C) = E + A C^-a,   E >= the ideal loss,   A >= 0,   a > 0

A mechanism whose trainings take tau times as long as the reference's, and which reaches the loss
that the reference would reach with g times the compute, has an effective speed-up s = g / tau: with
the reference, the same loss takes s times as long.

The losses r of the reference and m of the mechanism at one size are means over trainings in pairs
that share their seed. With b, the slope of the regression of m on r over the pairs of all sizes, r
and m - b r are uncorrelated, and have the expectations L(C) and L(s tau C) - b L(C). The deviations
from these expectations, in squared standard errors, have the sum Q, to which the error of tau
contributes, too. An estimate minimises Q. A 95 % confidence interval of s, or of its change with
size, consists of the values for which the least Q over all other unknowns exceeds the minimum by at
most the squared quantile of Student's t distribution (profile likelihood). The variances of the
losses are pooled over all sizes; they may be a power of compute. E and A have a closed form for
given a and s, so Q is computed on grids, whose region is narrowed several times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import Final, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import fdtrc, stdtrit  # type: ignore[import-untyped]

from nas.common.differences import LEVEL

Array: TypeAlias = NDArray[np.float64]

MOST: Final = 64.0  # the largest speed-up and slow-down that are distinguished
EXPONENTS: Final = (0.01, 3.0)  # the range of a
MARGIN: Final = 30.0  # excess of Q from which on exponents are not considered
ROUNDS: Final = 4  # grids of decreasing extent
LEAST_SIZES: Final = 3  # the unknowns of the law
TREND: Final = 0.5  # of the exponent of the variance: prior standard deviation
PRECISION: Final = 1e-4  # least standard deviation, as a share of the range of the losses
DOUBTFUL: Final = 0.01  # p-value below which a test rejects the law


@dataclass(frozen=True)
class Estimate:
    """An estimate and the bounds of its 95 % confidence interval, None without a bound."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Law:
    """The law L(C) = ``irreducible`` + ``scale`` C^-``exponent``."""

    irreducible: float
    scale: float
    exponent: float

    def loss(self, compute: float) -> float:
        """Return the loss that the reference reaches with so much compute."""
        return self.irreducible + self.scale * float(compute**-self.exponent)


@dataclass(frozen=True)
class SizeScores:
    """The results at one size.

    ``losses``, shape (pairs, 2), are those of the reference and of the mechanism, and ``times``,
    shape (rounds,), repeated measurements of the mechanism's time over the reference's.
    """

    compute: float
    losses: ArrayLike
    times: ArrayLike


class Scaling:
    """The evidence about the effective speed-up of a mechanism.

    ``sizes`` are the results at three or more sizes, in ascending order of compute, each of two or
    more pairs, and ``ideal`` is the least possible loss. ``law`` is the law of the reference;
    ``is_law_doubtful`` says whether a test rejects that the reference follows it.
    """

    def __init__(self, sizes: Sequence[SizeScores], ideal: float) -> None:
        logs = np.log([size.compute for size in sizes])
        self._unit = float(logs.mean())
        self._compute = logs - self._unit
        pairs = [np.transpose(size.losses) for size in sizes]
        middle = np.mean([pair[0].mean() for pair in pairs])  # moved to 0 against rounding errors
        self._ideal = ideal - middle
        counts = np.array([pair.shape[1] for pair in pairs])
        self._degrees = int(counts.sum()) - len(sizes)
        self._bound = float(stdtrit(max(self._degrees - 2, 1), 1 - LEVEL / 2)) ** 2
        self._reference, mechanism = np.transpose([pair.mean(axis=1) - middle for pair in pairs])
        own, other = np.hstack([pair - pair.mean(axis=1, keepdims=True) for pair in pairs])
        self._slope = float(own @ other / (own @ own or 1.0))
        self._rest = mechanism - self._slope * self._reference
        least = (PRECISION * np.ptp(self._reference)) ** 2 or 1.0
        size_of = np.repeat(np.arange(len(sizes)), counts)
        deviations = own, other - self._slope * own
        squares = np.array([np.bincount(size_of, each**2) for each in deviations])
        variance, rest_variance = np.maximum(self._variances(squares, counts - 1), least)
        self._weights = counts / variance
        self._exponents, fit, misfit = self._fit()
        scale = fit.scale * math.exp(fit.exponent * self._unit)
        self.law = replace(fit, irreducible=fit.irreducible + middle, scale=scale)
        spare = len(sizes) - LEAST_SIZES  # three sizes are on a law whatever their results are
        p = fdtrc(spare, self._degrees, misfit / spare) if spare else 1.0
        self.is_law_doubtful = bool(p < DOUBTFUL)
        times = [np.log(size.times) for size in sizes]
        self._time = np.array([each.mean() for each in times])
        # An error of tau changes the loss of the mechanism like an error of the compute.
        decline = fit.exponent * np.maximum(mechanism - fit.irreducible, 0.0)
        time_variance = decline**2 * [each.var(ddof=1) / len(each) for each in times]
        self._rest_weights = 1 / (rest_variance / counts + time_variance)

    def _variances(self, squares: Array, degrees: Array) -> Array:
        """Return the variances of losses by kind and size, from their sums of squares."""
        # A power of compute, with one exponent for both kinds: the most likely under the prior.
        powers = np.linspace(-3 * TREND, 3 * TREND, 121)
        shapes = np.exp(powers[:, None, None] * self._compute)
        pooled = (squares / shapes).sum(axis=-1) / degrees.sum()
        fit = np.log(np.maximum(pooled, 1e-300)).sum(axis=-1) * degrees.sum()
        fit += 2 * powers * (degrees @ self._compute) + (powers / TREND) ** 2
        best = fit.argmin()
        return cast("Array", pooled[best][:, None] * shapes[best])

    @property
    def times(self) -> list[float]:
        """The times of the mechanism, relative to the reference's, by size."""
        return [math.exp(time) for time in self._time]

    def speedups(self) -> list[Estimate]:
        """Return the effective speed-up at each size."""
        sizes = range(len(self._compute))
        return [self._estimates([i], np.ones((1, 1)), [np.ones(1)])[0] for i in sizes]

    def trend(self, factor: float) -> tuple[Estimate, Estimate]:
        """Return estimates of a speed-up that is a power of compute.

        The first estimate is the factor by which the speed-up changes if the compute is ten times
        as large, the second the speed-up at ``factor`` times the compute of the largest size.
        """
        share = (self._compute - self._compute[0]) / (self._compute[-1] - self._compute[0])
        per_nat = np.array([-1.0, 1.0]) / (self._compute[-1] - self._compute[0])
        beyond = np.array([0.0, 1.0]) + math.log(factor) * per_nat
        ends = np.stack([1 - share, share], axis=1)
        change, speedup = self._estimates(
            [*range(len(share))], ends, [math.log(10) * per_nat, beyond]
        )
        return change, speedup

    def _fit(self) -> tuple[Array, Law, float]:
        """Return the exponents to consider, the law of the reference, and its Q."""
        exponents = np.geomspace(*EXPONENTS, 300)
        while True:
            powers = np.exp(-exponents[:, None] * self._compute)
            ones = np.ones_like(powers)
            q, level, scale = _least(ones, powers, self._reference, self._weights, self._ideal)
            best = int(q.argmin())
            law = Law(float(level[best]), float(scale[best]), float(exponents[best]))
            if len(exponents) < 300:
                return exponents, law, float(q[best])
            kept = exponents[q <= q.min() + max(MARGIN, self._bound)]
            step = exponents[1] / exponents[0]
            exponents = np.geomspace(kept[0] / step, kept[-1] * step, 80)

    def _q(self, speedups: Array, chosen: Sequence[int]) -> Array:
        """Return the least Q at logarithmic speed-ups (..., c) at the chosen sizes: (...)."""
        exponents = self._exponents.reshape(-1, *[1] * speedups.ndim)
        own = np.exp(-exponents * self._compute)
        gains = np.exp(-exponents * (speedups + self._time[chosen])) - self._slope
        powers = gains * own[..., chosen]
        own = np.broadcast_to(own, (*powers.shape[:-1], own.shape[-1]))
        rest = np.full(len(chosen), 1 - self._slope)
        q, _, _ = _least(
            np.concatenate([np.ones_like(self._reference), rest]),
            np.concatenate([own, powers], axis=-1),
            np.concatenate([self._reference, self._rest[chosen]]),
            np.concatenate([self._weights, self._rest_weights[chosen]]),
            self._ideal,
        )
        return cast("Array", q.min(axis=0))

    def _estimates(
        self, chosen: Sequence[int], ends: Array, functions: Sequence[Array]
    ) -> list[Estimate]:
        """Return estimates of exp(f . x), where ``ends`` @ x are the logarithmic speed-ups.

        Each grid covers the part of the one before in which Q may be below its bound.
        """
        extent = np.tile([-math.log(MOST), math.log(MOST)], (ends.shape[1], 1))
        box, points = extent, 61 if len(extent) == 1 else 41
        for _ in range(ROUNDS):
            axes = np.linspace(box[:, 0], box[:, 1], points)
            x = np.stack(np.meshgrid(*axes.T, indexing="ij"), axis=-1)
            q = self._q(x @ ends.T, chosen)
            best = np.unravel_index(q.argmin(), q.shape)
            around = tuple(slice(max(i - 1, 0), i + 2) for i in best)
            reach = max(self._bound, 2 * (q[around].max() - q.min()))
            near = np.argwhere(q <= q.min() + reach)
            step = axes[1] - axes[0]
            low, high = (axes[0] + index * step for index in (near.min(0) - 1, near.max(0) + 1))
            box = np.clip(np.stack([low, high], axis=1), extent[:, :1], extent[:, 1:])
        inside = x[q <= q.min() + self._bound]
        return [self._between(x[best], inside, f) for f in functions]

    def _between(self, best: Array, inside: Array, f: Array) -> Estimate:
        values = inside @ f
        bounds = [
            None if np.abs(inside[i]).max() >= math.log(MOST) else math.exp(values[i])
            for i in (values.argmin(), values.argmax())
        ]
        return Estimate(math.exp(best @ f), *bounds)


def _least(
    ones: Array, powers: Array, losses: Array, weights: Array, ideal: float
) -> tuple[Array, Array, Array]:
    """Return the least Q = sum w (y - E p - A x)^2 over E >= ideal and A >= 0, with E and A.

    The sum is over the last axis of ``ones`` p, ``powers`` x, ``losses`` y and ``weights`` w.
    """
    pp, px, py, xx, xy, yy = (
        (weights * a * b).sum(axis=-1)
        for a, b in combinations_with_replacement((ones, powers, losses), 2)
    )
    level = (xx * py - px * xy) / np.maximum(pp * xx - px * px, 1e-300)
    scale = np.maximum((xy - np.maximum(level, ideal) * px) / np.maximum(xx, 1e-300), 0.0)
    level = np.maximum((py - scale * px) / pp, ideal)
    q = yy - 2 * (level * py + scale * xy - level * scale * px) + level**2 * pp + scale**2 * xx
    return q, level, scale
