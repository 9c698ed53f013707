"""Differences between trainings that share their seed: means, intervals, tests, verdicts.

A difference is the mean over pairs, judged by Student's t. Many are judged at once, so p-values are
corrected by Holm's method (1979, "A simple sequentially rejective multiple test procedure").

Trainings may be added where they decide nothing yet (``findings``). The numbers of pairs at which
one looks are said beforehand, K of them, and what a test says is the least of its p-values so far,
times K: by Bonferroni that is a p-value whenever one stops, whatever made one stop. So over these
Holm's method keeps its rate of error, and intervals hold at the level 1 - .05 / K each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nas.common.objectives import Direction

LEVEL: Final = 0.05
Verdict: TypeAlias = Literal["better", "worse", "same", "unresolved"]
# Of a difference at most two of these are wrong: it is on one side of zero and of the margin.
CLAIMS: Final[tuple[Verdict, ...]] = ("same", "worse", "better")
MOST_WRONG: Final = 2
_NO_SPREAD: Final = 1e-12


@dataclass(frozen=True)
class Finding:
    """What pairs of trainings say of a difference.

    Attributes:
        low, high: the interval that holds in 95 of 100 cases.
        p_holm: of each claim, after correction.
        pairs: how many there were.
    """

    mean: float
    error: float
    low: float
    high: float
    p_holm: Mapping[Verdict, float]
    pairs: int

    @property
    def verdict(self) -> Verdict:
        """What is established; "same", smaller than the margin either way, before all else."""
        return next((claim for claim in CLAIMS if self.p_holm[claim] < LEVEL), "unresolved")

    def reversed(self) -> Finding:
        """The same of the difference taken the other way round."""
        p = {**self.p_holm, "worse": self.p_holm["better"], "better": self.p_holm["worse"]}
        return replace(self, mean=-self.mean, low=-self.high, high=-self.low, p_holm=p)


def paired(own: Mapping[int, float], base: Mapping[int, float]) -> list[float]:
    """The differences between trainings of the same repeats."""
    return [own[repeat] - base[repeat] for repeat in sorted(own.keys() & base.keys())]


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error (the sample's deviation, n - 1, over the root of n), if n > 1."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return fmean(values), error


def difference(gains: Sequence[float]) -> dict[str, float] | None:
    """Mean, 95 % interval and two-sided p of the differences of pairs; None for less than two."""
    if len(gains) < 2:
        return None
    low, high = interval(gains)
    p = 2 * min(p_below(gains, 0.0), p_above(gains, 0.0))
    return {"mean": fmean(gains), "low": low, "high": high, "p": min(1.0, p)}


def findings(
    rows: Sequence[Sequence[float]], looks: Sequence[int], margin: float, direction: Direction
) -> list[Finding | None]:
    """Judge many differences at once, each by as many pairs as there are so far.

    All verdicts together are right in 95 of 100 cases. Of a row three things may be claimed:
    better, worse, or smaller than the margin either way; at most two of them are wrong, which is
    all that Holm's method has to allow for.

    Args:
        rows: of each difference the pairs' so far, in the order of the seeds; less than two say
            nothing (None), but count as a question that was asked.
        looks: all numbers of pairs at which verdicts are looked at, ascending.
    """
    raw = [_claimed(gains, looks, margin, direction) for gains in rows]
    flat = holm([p for own in raw for p in own], most_true=MOST_WRONG * len(rows))
    found: list[Finding | None] = []
    for i, gains in enumerate(rows):
        if len(gains) < 2:
            found.append(None)
            continue
        mean, error = mean_and_error(gains)
        p = dict(zip(CLAIMS, flat[i * len(CLAIMS) :], strict=False))
        low, high = interval(gains, LEVEL / len(looks))
        found.append(Finding(mean, error or 0.0, low, high, p, len(gains)))
    return found


def holm(values: Sequence[float], most_true: int | None = None) -> list[float]:
    """Holm's corrected p-values, in the given order.

    Args:
        most_true: how many of the null hypotheses can be true together, if not all of them
            (Shaffer 1986, "Modified sequentially rejective multiple test procedures").
    """
    adjusted, largest = [0.0] * len(values), 0.0
    most = len(values) if most_true is None else most_true
    for rank, i in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        largest = max(largest, min(1.0, min(most, len(values) - rank) * values[i]))
        adjusted[i] = largest
    return adjusted


def interval(gains: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Student's interval of the mean, which misses it with the probability ``level``."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    mean, error = mean_and_error(gains)
    reach = -float(stdtrit(len(gains) - 1, level / 2)) * _spread(gains, error)
    return mean - reach, mean + reach


def p_below(gains: Sequence[float], bound: float) -> float:
    """Student's one-sided p of "the mean is below the bound"."""
    from scipy.special import stdtr

    mean, error = mean_and_error(gains)
    if not _spread(gains, error):  # then there is nothing that a test could go by
        return 1.0
    return float(stdtr(len(gains) - 1, (mean - bound) / _spread(gains, error)))


def p_above(gains: Sequence[float], bound: float) -> float:
    """Student's one-sided p of "the mean is above the bound"."""
    return p_below([-gain for gain in gains], -bound)


def _spread(gains: Sequence[float], error: float | None) -> float:
    """The standard error, or 0 where differences are equal but for their rounding."""
    least = _NO_SPREAD * max(map(abs, gains))
    return error if error is not None and error > least else 0.0


def _claimed(
    gains: Sequence[float], looks: Sequence[int], margin: float, direction: Direction
) -> tuple[float, ...]:
    """For each of ``CLAIMS`` its p so far."""
    least = [1.0] * len(CLAIMS)
    for look in looks:
        if 2 <= look <= len(gains):
            seen = gains[:look]
            same = max(p_below(seen, margin), p_above(seen, -margin))
            worse, better = p_below(seen, 0.0), p_above(seen, 0.0)
            sides = (worse, better) if direction == "max" else (better, worse)
            least = [min(pair) for pair in zip(least, (same, *sides), strict=True)]
    return tuple(min(1.0, len(looks) * p) for p in least)
