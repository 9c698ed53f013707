"""Statistics of differences between trainings that share their seed.

A difference is a mean over pairs of trainings, tested with Student's t test. Several differences
are tested at once, so p-values are corrected by Holm's method (1979, "A simple sequentially
rejective multiple test procedure").

``findings`` allows more pairs to be trained for unresolved differences. The K numbers of pairs at
which verdicts are computed are fixed beforehand. The p-value of a test is K times the least of its
p-values so far (Bonferroni), which holds under every stopping rule. Holm's method is applied to
these p-values, and each interval has the level 1 - .05 / K.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Final, Literal, TypeAlias

from nas.common.objectives import Direction

LEVEL: Final = 0.05
Verdict: TypeAlias = Literal["better", "worse", "same", "unresolved"]
# At most two of the three null hypotheses of a difference can be true together.
CLAIMS: Final[tuple[Verdict, ...]] = ("same", "worse", "better")
MOST_WRONG: Final = 2
_NO_SPREAD: Final = 1e-12


@dataclass(frozen=True)
class Finding:
    """The estimate of a difference, and the results of its tests.

    Attributes:
        mean: mean difference over the pairs.
        error: standard error of the mean.
        low, high: bounds of the confidence interval of the mean.
        p_holm: corrected p-value of each claim: "same", "worse" and "better".
        pairs: number of pairs.
    """

    mean: float
    error: float
    low: float
    high: float
    p_holm: Mapping[Verdict, float]
    pairs: int

    @property
    def verdict(self) -> Verdict:
        """The first significant claim, or "unresolved".

        "same" means that the difference is smaller than the margin in either direction.
        """
        return next((claim for claim in CLAIMS if self.p_holm[claim] < LEVEL), "unresolved")

    def reversed(self) -> Finding:
        """Return the finding for the difference with the opposite sign."""
        p = {**self.p_holm, "worse": self.p_holm["better"], "better": self.p_holm["worse"]}
        return replace(self, mean=-self.mean, low=-self.high, high=-self.low, p_holm=p)


def paired(scores: Mapping[int, float], base: Mapping[int, float]) -> list[float]:
    """Return score minus base score for each repeat that is in both mappings, by repeat."""
    return [scores[repeat] - base[repeat] for repeat in sorted(scores.keys() & base.keys())]


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and its standard error, which is None for a single value."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return fmean(values), error


def difference(gains: Sequence[float]) -> dict[str, float] | None:
    """Return the statistics of paired differences: keys mean, low, high and p.

    "low" and "high" bound the 95 % interval; "p" is the two-sided p-value. The result is None for
    less than two pairs.
    """
    if len(gains) < 2:
        return None
    low, high = interval(gains)
    p = 2 * min(p_below(gains, 0.0), p_above(gains, 0.0))
    return {"mean": fmean(gains), "low": low, "high": high, "p": min(1.0, p)}


def findings(
    rows: Sequence[Sequence[float]], looks: Sequence[int], margin: float, direction: Direction
) -> list[Finding | None]:
    """Test several differences at once; the family-wise error rate of all verdicts is 5 %.

    Each row has three claims: better, worse, or smaller than the margin in either direction. At
    most two of their null hypotheses are true together, which Holm's correction uses.

    Args:
        rows: for each difference the gains of its pairs so far, in the order of the seeds. Rows
            with less than two pairs give None, and count in the correction.
        looks: all numbers of pairs at which verdicts are computed, ascending.
        margin: smallest difference that counts, in the unit of the gains.
        direction: "max" if a positive gain is better, else "min".
    """
    raw = [p for gains in rows for p in _claimed(gains, looks, margin, direction)]
    flat = holm(raw, most_true=MOST_WRONG * len(rows))
    results: list[Finding | None] = []
    for i, gains in enumerate(rows):
        if len(gains) < 2:
            results.append(None)
            continue
        mean, error = mean_and_error(gains)
        p = dict(zip(CLAIMS, flat[i * len(CLAIMS) :], strict=False))
        low, high = interval(gains, LEVEL / len(looks))
        results.append(Finding(mean, error or 0.0, low, high, p, len(gains)))
    return results


def holm(values: Sequence[float], most_true: int | None = None) -> list[float]:
    """Return Holm's corrected p-values, in the order of the arguments.

    Args:
        values: uncorrected p-values.
        most_true: how many of the null hypotheses can be true together; all of them by default
            (Shaffer 1986, "Modified sequentially rejective multiple test procedures").
    """
    adjusted, largest = [0.0] * len(values), 0.0
    most = len(values) if most_true is None else most_true
    for rank, i in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        largest = max(largest, min(1.0, min(most, len(values) - rank) * values[i]))
        adjusted[i] = largest
    return adjusted


def interval(gains: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Return Student's confidence interval of the mean at the level 1 - ``level``."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    mean, error = _mean_and_spread(gains)
    reach = -float(stdtrit(len(gains) - 1, level / 2)) * error
    return mean - reach, mean + reach


def p_below(gains: Sequence[float], bound: float) -> float:
    """Return Student's one-sided p-value for the claim that the mean is below the bound."""
    from scipy.special import stdtr

    mean, error = _mean_and_spread(gains)
    if not error:  # the test statistic is undefined
        return 1.0
    return float(stdtr(len(gains) - 1, (mean - bound) / error))


def p_above(gains: Sequence[float], bound: float) -> float:
    """Return Student's one-sided p-value for the claim that the mean is above the bound."""
    return p_below([-gain for gain in gains], -bound)


def _mean_and_spread(gains: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, which is 0 if the gains differ by rounding only."""
    mean, error = mean_and_error(gains)
    least = _NO_SPREAD * max(map(abs, gains))
    return mean, error if error is not None and error > least else 0.0


def _claimed(
    gains: Sequence[float], looks: Sequence[int], margin: float, direction: Direction
) -> tuple[float, ...]:
    """Return the p-value of each claim, corrected for the number of looks."""
    least = [1.0] * len(CLAIMS)
    for look in looks:
        if 2 <= look <= len(gains):
            prefix = gains[:look]
            same = max(p_below(prefix, margin), p_above(prefix, -margin))
            worse, better = p_below(prefix, 0.0), p_above(prefix, 0.0)
            sides = (worse, better) if direction == "max" else (better, worse)
            least = [min(pair) for pair in zip(least, (same, *sides), strict=True)]
    return tuple(min(1.0, len(looks) * p) for p in least)
