"""Statistics of trainings at several learning rates: choose a rate, and compare at the best rates.

Every mechanism is trained at each of the task's rates with the first ``CHOOSING_SEEDS`` seeds.
These choose the rate of the best mean, and close rates that are clearly worse or at which a
training failed (`open_rates`). All reported values come from further seeds at the open rates, so
the mean at the chosen rate is unbiased.

Few seeds may choose the wrong rate, so a t test between the chosen rates has too many false claims.
The claim "better" therefore requires that the mechanism, at its chosen rate, is better than the
reference at each open rate, so also at the reference's best. The largest of the one-sided p-values
is valid whichever rate was chosen (intersection-union test; Berger 1982, "Multiparameter hypothesis
testing and acceptance sampling"). The confidence interval holds what these tests do not reject.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Final, TypeAlias

from nas.common.differences import bounds, interval, p_above, paired, successful
from nas.common.objectives import Direction

CHOOSING_SEEDS: Final = 2
CLOSING: Final = 0.005  # the probability with which each worse rate closes a mechanism's best one
Scores: TypeAlias = Mapping[str, dict[float, dict[int, float | None]]]  # by name, rate and repeat


@dataclass(frozen=True)
class TunedScores:
    """The chosen learning rate, and the values of the seeds that did not choose it, by rate."""

    rate: float
    by_rate: Mapping[float, Mapping[int, float | None]]

    @property
    def values(self) -> Mapping[int, float | None]:
        """The values at the chosen rate, by repeat."""
        return self.by_rate[self.rate]


def open_rates(scores: Scores, direction: Direction) -> dict[str, list[float]]:
    """Return the rates of each mechanism that the choosing seeds leave open.

    A rate is closed if a training failed at it, or if its mean is worse than that of the
    mechanism's best rate by more than t standard errors of the difference. The variance of a
    training is pooled over all mechanisms and rates, after the mean of each and the part that a
    seed shares: s² = Σ r² / f with f = (groups - 1)(seeds - 1) and the residuals r. If the variance
    of a mechanism's own trainings is larger, it counts. The bound t is the quantile of Student's
    distribution with f degrees of freedom at 1 - ``CLOSING``.

    So a mechanism's best rate is closed with a probability of ``CLOSING`` for each other rate (more
    if its variance is the largest), which adds at most as much to the level of a test.
    """
    import numpy as np  # here, since `nas front` does without
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    sign = 1.0 if direction == "max" else -1.0
    values = {
        name: {
            rate: [sign * own[repeat] for repeat in sorted(own)]
            for rate, by_repeat in by_rate.items()
            if len(own := successful(by_repeat)) == CHOOSING_SEEDS
        }
        for name, by_rate in scores.items()
    }

    def variance(rows: Iterable[list[float]]) -> tuple[float, int]:
        groups = np.array([*rows])
        freedom = (len(groups) - 1) * (CHOOSING_SEEDS - 1)
        if freedom < 1:
            return math.inf, 0
        residuals = groups - groups.mean(axis=1, keepdims=True) - groups.mean(axis=0)
        return ((residuals + groups.mean()) ** 2).sum() / freedom, freedom

    pooled, freedom = variance(own for by_rate in values.values() for own in by_rate.values())
    quantile = stdtrit(freedom, 1 - CLOSING) if freedom else math.inf

    def reach(name: str) -> float:
        own, of = variance(values[name].values())
        return float(quantile * math.sqrt(max(pooled, own if of else 0.0) * 2 / CHOOSING_SEEDS))

    means = {
        name: {r: fmean(own) for r, own in by_rate.items()} for name, by_rate in values.items()
    }
    return {
        name: [r for r, mean in by_rate.items() if mean >= max(by_rate.values()) - reach(name)]
        for name, by_rate in means.items()
    }


def tune(
    scores: Mapping[float, Mapping[int, float | None]], direction: Direction
) -> TunedScores | None:
    """Choose a mechanism's learning rate; None if each rate has a failed training (a score None).

    ``scores`` are by rate, then by repeat. Rates with the choosing seeds alone were closed; of the
    others the repeats that all have are reported. Of rates with equal means the lowest is chosen.
    """
    entered = {rate: scores[rate] for rate in sorted(scores) if len(scores[rate]) > CHOOSING_SEEDS}
    entered = entered or {rate: scores[rate] for rate in sorted(scores)}
    shared = sorted(set.intersection(*({*of} for of in entered.values()))) if entered else []
    trained = {rate: successful(by_repeat) for rate, by_repeat in entered.items()}
    complete = {rate: own for rate, own in trained.items() if own.keys() >= {*shared}}
    if not complete:
        return None
    best = max if direction == "max" else min
    rate = best(complete, key=lambda rate: fmean(complete[rate][i] for i in range(CHOOSING_SEEDS)))
    reported = shared[CHOOSING_SEEDS:]
    return TunedScores(
        rate, {rate: {i: of.get(i) for i in reported} for rate, of in entered.items()}
    )


def tuned_difference(
    scores: TunedScores | None, base: TunedScores | None, direction: Direction
) -> dict[str, float | None] | None:
    """Return the ``difference`` of two mechanisms, each at its best learning rate.

    "mean" is the difference at the chosen rates. The result is None for fewer than two pairs, or if
    a mechanism has no rate. A failed training at an open rate excludes a claim against that rate.
    """
    if scores is None or base is None:
        return None
    gains = paired(scores.values, base.values)
    if len(gains) < 2:
        return None
    better, low = _lower_side(scores, base, direction)
    worse, least = _lower_side(base, scores, direction)
    ends = (low, -least) if direction == "max" else (least, -low)
    p = min(1.0, 2 * min(better, worse))
    return {"mean": fmean(gains), **bounds(*ends), "p": p}


def _lower_side(
    scores: TunedScores, base: TunedScores, direction: Direction
) -> tuple[float, float]:
    """Return the p-value of "better", and the lower bound of how much better the mechanism is."""
    sign = 1.0 if direction == "max" else -1.0
    gains = [
        [sign * gain for gain in paired(scores.values, values)] for values in base.by_rate.values()
    ]
    if not all(gains):  # a training failed at an open rate, which may be the best one
        return 1.0, -math.inf
    return max(p_above(each, 0.0) for each in gains), min(interval(each)[0] for each in gains)
