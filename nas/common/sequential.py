"""Claims about gains that are valid after every number of pairs, and for gains of any distribution.

A gain is the difference between two trainings that share their seed; the gains of different seeds
are independent and have the same distribution. An e-value measures the evidence for a claim. If the
claim is false, the probability that any of the e-values e(1), e(2), ... reaches c is at most 1 / c
(Ville's inequality), so one may stop after any pair. docs/judging.md has the proofs.

Claim "typical": the mechanism wins at more seeds than it loses (the median gain is positive). With
w wins and l losses, B the beta function and I the regularised incomplete beta function,

    e = 2^(w + l + 1) B(w + 1, l + 1) I_1/2(l + 1, w + 1),

the mean of the likelihood ratio (2p)^w (2 - 2p)^l over p in (1/2, 1).

Claim "mean": the mean gain is positive, where a gain or loss counts at most ``cap``. With x_i =
gain_i / cap, limited to [-1, 1],

    e = mean over L in (0, 1) of (1 + L x_1) (1 + L x_2) ... (1 + L x_n).

(Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting".)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, logsumexp  # type: ignore[import-untyped]

from nas.common.differences import LEVEL, Side

Array: TypeAlias = NDArray[np.float64]
Claim: TypeAlias = Literal["typical", "mean"]
CLAIMS: Final[tuple[Claim, ...]] = get_args(Claim)
STAKES: Final = (np.arange(32) + 0.5) / 32  # the values of L over which the mean is taken
MOST_PAIRS: Final = 1000


@dataclass(frozen=True)
class Decision:
    """What the evidence permits to claim, and the greatest e-value so far of either side.

    ``decided_after`` is the number of pairs after which a claim would be made if the gains so far
    recurred in order; None if that takes more than ``MOST_PAIRS``.

    Once these e-values permit a claim, ``rates`` are those against the mechanism that would lose at
    each of its other learning rates, if rates are tried; a claim is made when all permit it.
    """

    verdict: Side
    better: float
    worse: float
    decided_after: int | None = None
    rates: Mapping[float, float] = field(default_factory=dict)


def needed(places: int) -> float:
    """Return the e-value from which a claim is made about one of ``places`` mechanisms.

    The probability that any claim of one kind is false is at most ``LEVEL`` (Bonferroni's
    correction over both sides of all mechanisms).
    """
    return 2 * places / LEVEL


def decide(gains: Sequence[float], claim: Claim, cap: float, places: int = 1) -> Decision:
    """Return the decision about gains in the order of seeds; positive gains are improvements."""
    if not gains:
        return Decision("undecided", 1.0, 1.0)
    x = np.array([gains, np.negative(gains)])
    most, least = evidence(x, claim, cap).max(axis=-1)
    side: Side = "undecided"
    if max(most, least) >= needed(places):
        side = "better" if most > least else "worse"
    recurring = np.resize(gains, MOST_PAIRS)
    e = evidence(np.array([recurring, -recurring]), claim, cap).max(axis=0)
    is_enough = e >= needed(places)
    after = int(is_enough.argmax()) + 1 if is_enough.any() else None
    return Decision(side, float(most), float(least), after)


def evidence(gains: ArrayLike, claim: Claim, cap: float) -> Array:
    """Return the e-value of the claim after each gain: from gains (..., pairs) to (..., pairs)."""
    x = np.asarray(gains, float)
    if claim == "typical":
        return _evidence_of_counts(np.cumsum(x > 0, axis=-1), np.cumsum(x < 0, axis=-1))
    steps = np.log1p(STAKES * np.clip(x / cap, -1.0, 1.0)[..., None])
    wealth = logsumexp(np.cumsum(steps, axis=-2), axis=-1) - np.log(len(STAKES))
    return cast("Array", np.exp(np.minimum(wealth, 700.0)))


def typical_interval(gains: Sequence[float], level: float) -> tuple[float, float] | None:
    """Return an interval of the median gain that is valid after every number of pairs.

    The probability that any of the intervals after 1, 2, ... pairs misses the median is at most
    ``level``. The bounds are the k-th lowest and highest gain, with the least k for which the mean
    of the e-values of "above" and "below" does not reach 1 / ``level``; the result is None if even
    the range of all gains is too narrow.
    """
    n = len(gains)
    below = np.arange(n + 1)
    both = (_evidence_of_counts(n - below, below) + _evidence_of_counts(below, n - below)) / 2
    least = int((both < 1 / level).argmax())  # the fewest gains below a median that is not excluded
    if not least:
        return None
    ordered = sorted(gains)
    return ordered[least - 1], ordered[-least]


def _evidence_of_counts(wins: NDArray[np.int_], losses: NDArray[np.int_]) -> Array:
    above_half = betainc(losses + 1, wins + 1, 0.5)
    e: Array = 2 * above_half * np.exp(betaln(wins + 1, losses + 1) + (wins + losses) * np.log(2))
    return e
