"""Simulate ``nas judge``: the rate of false claims, and the number of pairs until a true claim.

A gain is the difference between two trainings that share their seed; the standard deviation of the
noise of one training is 1. In a record, fifty edits of a mechanism are judged one after another.
The noise of symmetric gains is normal, has heavy tails (Student's distribution with two degrees of
freedom), has two values, or is drawn from the recorded trainings of a table. Skewed gains belong to
a mechanism that is a little better at most seeds, and learns nothing at one seed of 10, 20 or 50,
where it loses ``LEARNED``; their mean is 0, and their median is positive. Gains with a rare jackpot
have median 0 and a positive mean.

With three learning rates, the other ones are worse than the best by some deviations, and two seeds
choose the rate of each mechanism. Both `nas judge` and `nas evaluate` then compare with the other
mechanism at all its (open) rates.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.rows import Mean, Row
from benchmarks.tabular.table import load_table
from nas.api.judging import PLACES
from nas.common.differences import LEVEL, difference, paired
from nas.common.rates import CHOOSING_SEEDS, open_rates, tune, tuned_difference
from nas.common.sequential import Claim, evidence, needed

if TYPE_CHECKING:
    Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    Draw = Callable[[tuple[int, ...]], Array]

RECORDS: Final = 1000
SINGLE: Final = 10_000  # judgements without a record
PAIRS: Final = 40
LEARNED: Final = 40.0  # distance from chance to the reference: 40 points of accuracy, noise 1 point
NEAR_CHANCE: Final = 0.5  # the same for a reference that learned less than its noise
TABLES: Final = ("attention-bench", "attention-bench-quick", "recall-bench")
EFFECTS: Final = (1.0, 2.0, 3.0)
RARE: Final = (10, 20, 50)
REPORTED: Final = 5  # seeds of `nas evaluate` with learning rates
WORSE: Final = ((0.0, 0.0), (0.7, 0.7), (2.0, 2.0), (0.7, 4.0), (9.0, 9.0))


def judging(options: argparse.Namespace) -> Iterator[Row]:
    """Yield shares of claims that are false or true, and the number of pairs until a true claim."""
    rng = np.random.default_rng(options.seed)
    noises: dict[str, Draw] = {
        "normal": rng.standard_normal,
        "heavy tails": lambda shape: rng.standard_t(2, shape),
        "two values": lambda shape: rng.choice([-1.0, 1.0], shape),
        **{name: _recorded(name, rng) for name in TABLES},
    }
    gains: dict[str, tuple[Draw, tuple[Claim, ...]]] = {
        name: (_paired(noise), ("typical", "mean")) for name, noise in noises.items()
    }
    for rare in RARE:
        gains[f"fails at 1 seed of {rare}"] = (_failing(rare, rng), ("mean",))
        gains[f"jackpot at 1 seed of {rare}"] = (_jackpot(rare, rng), ("typical",))
    for name, (draw, false) in gains.items():
        yield {"gains": name, **_shares(draw, false, LEARNED)}
    near = _shares(gains["normal"][0], ("typical", "mean"), NEAR_CHANCE)
    yield {"gains": "normal, reference near chance", **near}
    powers: tuple[tuple[Claim, int], ...] = (("typical", 20), ("typical", PAIRS), ("mean", 200))
    for claim, most in powers:
        for effect in EFFECTS:
            yield _power(claim, most, effect, rng)
    for worse in WORSE:
        for effect in (0.0, 2.0, 3.0):
            yield _at_rates(np.array([0.0, *worse]), effect, rng)


def _paired(noise: Draw) -> Draw:
    return lambda shape: noise(shape) - noise(shape)


def _failing(rare: int, rng: np.random.Generator) -> Draw:
    """Return gains of mean 0 that are -``LEARNED`` at one seed of ``rare``, else positive."""

    def draw(shape: tuple[int, ...]) -> Array:
        better = LEARNED / (rare - 1) + np.sqrt(2) * rng.standard_normal(shape)
        return np.where(rng.random(shape) < 1 / rare, -LEARNED, better)

    return draw


def _jackpot(rare: int, rng: np.random.Generator) -> Draw:
    """Return gains of median 0, of which one of ``rare`` is about ``LEARNED``."""

    def draw(shape: tuple[int, ...]) -> Array:
        is_rare = rng.random(shape) < 1 / rare
        # Half of all gains are positive, the rare ones included.
        is_positive = rng.random(shape) < (0.5 - 1 / rare) / (1 - 1 / rare)
        size = np.abs(np.sqrt(2) * rng.standard_normal(shape))
        return np.where(is_rare, LEARNED, np.where(is_positive, size, -size))

    return draw


def _recorded(table: str, rng: np.random.Generator) -> Draw:
    """Return noise drawn from a table, with a standard deviation of 1."""
    loaded = load_table(table)
    scores = loaded.scores(loaded.metrics[0])
    residuals = (scores - scores.mean(axis=1, keepdims=True)).ravel()
    residuals = residuals[np.isfinite(residuals)] / np.nanstd(residuals)
    return lambda shape: rng.choice(residuals, shape)


def _shares(draw: Draw, false: tuple[Claim, ...], learned: float) -> dict[str, object]:
    """Return the share of records and judgements with a claim, for claims that are false."""
    shares: dict[str, object] = {}
    claims: tuple[Claim, ...] = ("typical", "mean")
    for claim in claims:
        drawn = (draw((PLACES, PAIRS)) for _ in range(RECORDS))
        records = [_is_claimed(gains, claim, PLACES, learned).any() for gains in drawn]
        single = _is_claimed(draw((SINGLE, PAIRS)), claim, 1, learned)
        for what, wrong in (("records", np.array(records)), ("judgements", single)):
            text = str(Mean(100 * wrong.mean(), 100 * wrong.std() / np.sqrt(len(wrong))))
            shares[f"{claim}, {what} %"] = text if claim in false else f"({text}, true)"
    return shares


def _is_claimed(gains: Array, claim: Claim, places: int, learned: float) -> Array:
    """Return which edits are claimed to be better or worse, (edits,), from gains (edits, pairs)."""
    both = evidence(np.stack([gains, -gains]), claim, learned)
    claimed: Array = (both >= needed(places)).any(axis=(0, 2))
    return claimed


def _power(claim: Claim, most: int, effect: float, rng: np.random.Generator) -> Row:
    """Return the share of claims within ``most`` pairs for normal gains, and the median pairs."""
    gains = effect + _paired(rng.standard_normal)((SINGLE // 10, most))
    row: dict[str, object] = {"claim": claim, "gain, deviations": effect, "within pairs": most}
    for name, places in (("judgements", 1), ("records", PLACES)):
        is_claimed = evidence(gains, claim, LEARNED) >= needed(places)
        is_any = is_claimed.any(axis=1)
        pairs = np.where(is_any, 1 + is_claimed.argmax(axis=1), np.inf)
        median = np.quantile(pairs, 0.5, method="higher")
        row[name] = f"{is_any.mean():.0%}, median {median:g}"
    return row


def _at_rates(worse: Array, effect: float, rng: np.random.Generator) -> Row:
    """Return the shares of claims about two mechanisms at rates that are worse by so much.

    The first mechanism is better by ``effect``; if it is 0, claims are false.
    """
    shape = 3 * SINGLE // 10, 2, len(worse), CHOOSING_SEEDS + PAIRS
    scores = rng.standard_normal(shape) - worse[:, None]
    scores[:, 0] += effect
    pairs = scores[..., CHOOSING_SEEDS:]
    chosen = scores[..., :CHOOSING_SEEDS].mean(axis=-1).argmax(axis=-1)
    best = np.take_along_axis(pairs, chosen[:, :, None, None], axis=2)
    # Of either mechanism at its chosen rate, against the other one at each rate.
    claims = (evidence(best - pairs[:, ::-1], "typical", LEARNED) >= needed(1)).any(axis=-1)
    at_chosen = np.take_along_axis(claims, chosen[:, ::-1, None], axis=2)
    judged = claims.all(axis=2).any(axis=1).mean(), at_chosen.any(axis=(1, 2)).mean()
    shares = *judged, *np.mean([_evaluate(each) for each in scores], axis=0)
    titles = ("judge", "at chosen rates", "evaluate", "t test at chosen rates", "trainings")
    named = {"other rates worse by": ", ".join(f"{each:g}" for each in worse[1:]), "gain": effect}
    return named | {title: f"{share:.1%}" for title, share in zip(titles, shares, strict=True)}


def _evaluate(scores: Array) -> tuple[bool, bool, float]:
    """Return whether `nas evaluate` makes a claim with ``REPORTED`` seeds, from (2, rates, seeds).

    The others are whether Student's test at the chosen rates does, and the share of trainings.
    """
    few, every = (
        [{float(r): dict(enumerate(row[:seeds])) for r, row in enumerate(own)} for own in scores]
        for seeds in (CHOOSING_SEEDS, CHOOSING_SEEDS + REPORTED)
    )
    rates = [*open_rates({str(i): own for i, own in enumerate(few)}, "max").values()]
    tuned = [tune({r: own[r] for r in left}, "max") for left, own in zip(rates, every, strict=True)]
    tests = tuned_difference(*tuned, "max"), difference(paired(*(one.values for one in tuned)))
    closed = 1 - np.mean([len(left) for left in rates]) / scores.shape[1]
    cost = 1 - closed * REPORTED / (CHOOSING_SEEDS + REPORTED)
    return *(test["p"] < LEVEL for test in tests), cost
