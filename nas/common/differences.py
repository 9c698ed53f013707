"""Statistics of differences between the metrics of mechanisms trained with the same seeds.

Two trainings with the same seed form a pair, and the difference of their metrics is its gain. The
mean gain is tested with Student's t test, and the differences of a column are corrected together by
Holm's method (1979, "A simple sequentially rejective multiple test procedure"). "Undecided" does
not mean equal. A mechanism with a failed training has no difference to any mechanism, because its
successful trainings are a biased sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final, Literal, TypeAlias

from nas.common.objectives import Direction

LEVEL: Final = 0.05
Side: TypeAlias = Literal["better", "worse", "undecided"]
# At most two of the three null hypotheses of a difference can be true together.
CLAIMS: Final = ("same", "worse", "better")
MOST_WRONG: Final = 2
_NO_SPREAD: Final = 1e-12


@dataclass(frozen=True)
class Difference:
    """The mean gain of one mechanism over another, and the result of its tests.

    ``error`` is the standard error of the mean, ``low`` and ``high`` bound its 95 % confidence
    interval, ``p`` is the p-value of the test that it is 0, ``p_holm`` the corrected p-value of the
    verdict: "better", "worse", "undecided", or of ``findings`` "same", that is, smaller than the
    margin. A single pair has a mean alone, and is undecided.
    """

    mean: float
    error: float | None
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    verdict: str


def successful(scores: Mapping[int, float | None]) -> dict[int, float]:
    """Return the scores without those of failed trainings, which are None."""
    return {repeat: score for repeat, score in scores.items() if score is not None}


def paired(scores: Mapping[int, float | None], base: Mapping[int, float | None]) -> list[float]:
    """Return the gains ``scores[r] - base[r]`` for all keys r of both; [] if a training failed."""
    own, other = successful(scores), successful(base)
    if len(own) < len(scores) or len(other) < len(base):
        return []
    return [own[repeat] - other[repeat] for repeat in sorted(own.keys() & other.keys())]


def side_of(mean: float, p: float, direction: Direction) -> Side:
    """Return the side of a mean gain; ``p`` is the (corrected) p-value of the test that it is 0."""
    if p >= LEVEL:
        return "undecided"
    return "better" if (mean > 0) == (direction == "max") else "worse"


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean of the values and its standard error, which is None for a single value."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return fmean(values), error


def difference(gains: Sequence[float]) -> dict[str, float | None] | None:
    """Return the mean gain, its 95 % confidence interval and the p-value of the test that it is 0.

    The keys are "mean", "low", "high" and "p". The result is None for fewer than two pairs.
    """
    if len(gains) < 2:
        return None
    p = 2 * min(p_below(gains, 0.0), p_above(gains, 0.0))
    return {"mean": fmean(gains), **bounds(*interval(gains)), "p": min(1.0, p)}


def bounds(low: float, high: float) -> dict[str, float | None]:
    """Return bounds as "low" and "high", None if one is infinite."""
    is_known = math.isfinite(low) and math.isfinite(high)
    return {"low": low, "high": high} if is_known else {"low": None, "high": None}


def findings(
    rows: Sequence[Sequence[float]], margin: float, direction: Direction
) -> list[Difference | None]:
    """Return the difference of each row of gains; None for fewer than two gains.

    A difference below ``margin`` is negligible. The probability of any false claim (better, worse,
    or smaller than the margin) is at most 5 %.
    """
    raw = [p for gains in rows for p in _claimed(gains, margin, direction)]
    corrected = iter(holm(raw, most_true=MOST_WRONG * len(rows)))
    results: list[Difference | None] = []
    for gains in rows:
        claims = {claim: next(corrected) for claim in CLAIMS}
        if (tested := difference(gains)) is None:
            results.append(None)
            continue
        verdict = next((claim for claim in CLAIMS if claims[claim] < LEVEL), "undecided")
        p = claims.get(verdict, min(claims.values()))
        _, error = mean_and_error(gains)
        ends = tested["low"], tested["high"], tested["p"]
        results.append(Difference(fmean(gains), error, *ends, p, verdict))
    return results


def holm(values: Sequence[float], most_true: int | None = None) -> list[float]:
    """Return p-values corrected by Holm's method, in the order of ``values``.

    ``most_true`` is the largest number of null hypotheses that can be true together (Shaffer 1986,
    "Modified sequentially rejective multiple test procedures"); by default all.
    """
    adjusted, largest = [0.0] * len(values), 0.0
    most = len(values) if most_true is None else most_true
    for rank, i in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        largest = max(largest, min(1.0, min(most, len(values) - rank) * values[i]))
        adjusted[i] = largest
    return adjusted


def interval(gains: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Return the bounds of Student's confidence interval (1 - ``level``) of the mean gain."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    mean, error = _mean_and_spread(gains)
    if mean and not error:  # a few differences of accuracy may be equal: their spread is unknown
        return -math.inf, math.inf
    reach = -float(stdtrit(len(gains) - 1, level / 2)) * error
    return mean - reach, mean + reach


def p_below(gains: Sequence[float], bound: float) -> float:
    """Return Student's one-sided p-value for the claim that the mean gain is below ``bound``."""
    from scipy.special import stdtr

    mean, error = _mean_and_spread(gains)
    if not error:  # the test statistic is undefined
        return 1.0
    return float(stdtr(len(gains) - 1, (mean - bound) / error))


def p_above(gains: Sequence[float], bound: float) -> float:
    """Return Student's one-sided p-value for the claim that the mean gain is above ``bound``."""
    return p_below([-gain for gain in gains], -bound)


def _mean_and_spread(gains: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error: 0 for one gain, or if all are nearly equal."""
    mean, error = mean_and_error(gains)
    least = _NO_SPREAD * max(map(abs, gains))
    return mean, error if error is not None and error > least else 0.0


def _claimed(gains: Sequence[float], margin: float, direction: Direction) -> tuple[float, ...]:
    """Return the p-value of each claim in ``CLAIMS``."""
    if len(gains) < 2:
        return (1.0,) * len(CLAIMS)
    same = max(p_below(gains, margin), p_above(gains, -margin))
    worse, better = p_below(gains, 0.0), p_above(gains, 0.0)
    return (same, worse, better) if direction == "max" else (same, better, worse)
