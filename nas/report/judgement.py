"""The result of ``nas.judge``: whether one mechanism is better than another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, Final

from rich.console import Console

from nas.common.differences import LEVEL, Side
from nas.common.objectives import Metric
from nas.common.rates import CHOOSING_SEEDS
from nas.common.sequential import (
    CLAIMS,
    MOST_PAIRS,
    Claim,
    Decision,
    decide,
    needed,
    typical_interval,
)
from nas.common.text import plural
from nas.report.comparison import Comparison, TrainingRow, compare
from nas.report.comparison_table import comparison_table
from nas.report.result import Result
from nas.report.table import say
from nas.report.units import points, points_between, quantity

ABOUT: Final[Mapping[Claim, str]] = {
    "typical": "at a typical seed",
    "mean": "in the mean over all seeds",
}


@dataclass(frozen=True)
class Judgement(Result):
    """The result of ``nas.judge``: whether one mechanism is better than another.

    Attributes:
        source, against: names of the judged mechanism and the reference.
        comparison: the trainings of both mechanisms, without a difference.
        claim: what the verdict is about: "typical" or "mean" (``nas.common.sequential``).
        difference: ``median`` and ``mean`` of the differences of the pairs; from the eighth pair on
            also ``low`` and ``high``, an interval of the median that is valid after every number of
            pairs.
        needed: e-value from which a claim is made.
        cap: the most that a gain or a loss counts in the claim about the mean.
        place: place of the judged mechanism among those with trainings in the record, from 1; the
            reference is not counted.
        places: number of mechanisms over which the probability of false claims is bounded.
    """

    source: str
    against: str
    task: str
    comparison: Comparison
    claim: Claim
    claims: Mapping[Claim, Decision]
    difference: Mapping[str, float]
    needed: float
    cap: float
    place: int
    places: int

    @property
    def verdict(self) -> Side:
        """Whether the judged mechanism is shown to be better or worse than the reference."""
        return self.claims[self.claim].verdict

    @property
    def is_ok(self) -> bool:
        """Whether any training of the reference succeeded."""
        return self.comparison.cells[self.task, self.against].mean is not None

    @property
    def pairs(self) -> int:
        """The number of pairs of trainings that share their seed."""
        return self.comparison.seeds

    @property
    def leader(self) -> tuple[str, str]:
        """The mechanism with the greater e-value, and the other one."""
        of = self.claims[self.claim]
        names = self.source, self.against
        return names if of.better >= of.worse else names[::-1]

    @property
    def unbeaten(self) -> dict[str, list[float]]:
        """The other learning rates at which the leader is not yet shown to beat the other one."""
        rates = self.claims[self.claim].rates
        left = [rate for rate, e in rates.items() if e < self.needed]
        return {self.leader[1]: left} if left else {}

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``nas judge --json`` prints."""
        return super().to_dict() | {"verdict": self.verdict, "pairs": self.pairs}


def make_judgement(
    source: str,
    against: str,
    task: str,
    rows: Iterable[TrainingRow],
    metric: Metric,
    claim: Claim,
    place: int,
    places: int,
    chosen: Mapping[str, float] = {},
) -> Judgement:
    """Return the judgement of a mechanism after ``rows``, trainings of both with the same seeds.

    ``chosen`` are the chosen learning rates by name, and the first ``CHOOSING_SEEDS`` seeds of each
    rate chose them; empty if no rates are tried.

    A failed training counts as one that learned nothing: its metric is ``metric.chance``, or that
    of the other training of the pair if this is worse. A gain or loss counts at most the distance
    from chance to the first training of the reference that is better than chance (from chance to
    the ideal if none is). The pairs up to this training are no evidence about the mean, because the
    bound must not depend on the gains that it bounds.
    """
    ordered = sorted(rows, key=lambda row: (row.mechanism == source, row.repeat))
    sign = 1 if metric.direction == "max" else -1
    learned: dict[tuple[str, float | None], dict[int, float | None]] = {}
    for row in ordered:
        if row.repeat >= (CHOOSING_SEEDS if chosen else 0):
            distance = None if row.value is None else sign * (row.value - metric.chance)
            learned.setdefault((row.mechanism, row.learning_rate), {})[row.repeat] = distance
    own, base = (learned[name, chosen.get(name)] for name in (source, against))
    above = ((repeat, distance) for repeat, distance in base.items() if distance and distance > 0)
    first, cap = next(above, (-1, abs(metric.ideal - metric.chance)))
    starts: dict[Claim, int] = {"typical": 0, "mean": first + 1}
    gains = _gains(own, base)
    differences = [sign * each for each in gains]

    def result(each: Claim) -> Decision:
        decision = decide(_gains(own, base, starts[each]), each, cap, places)
        rates: dict[float, float] = {}
        if chosen and decision.verdict != "undecided":
            winner, loser = (own, against) if decision.verdict == "better" else (base, source)
            for rate in {row.learning_rate: None for row in ordered}:
                if rate is not None and rate != chosen[loser]:
                    other = _gains(winner, learned.get((loser, rate), {}), starts[each])
                    rates[rate] = decide(other, each, cap, places).better
        if min(rates.values(), default=math.inf) < needed(places):
            return replace(decision, verdict="undecided", rates=rates)
        return replace(decision, rates=rates)

    bounds = typical_interval(differences, LEVEL / places) or ()
    return Judgement(
        source=source,
        against=against,
        task=task,
        comparison=compare(ordered, {task: task}, None, len(gains), chosen=chosen),
        claim=claim,
        claims={each: result(each) for each in CLAIMS},
        difference={
            "median": median(differences),
            "mean": fmean(differences),
            **dict(zip(("low", "high"), bounds, strict=False)),
        },
        needed=needed(places),
        cap=cap,
        place=place,
        places=places,
    )


def _gains(
    own: Mapping[int, float | None], other: Mapping[int, float | None], start: int = 0
) -> list[float]:
    shared = (repeat for repeat in own if repeat >= start and repeat in other)
    return [_gain(own[repeat], other[repeat]) for repeat in shared]


def _gain(own: float | None, other: float | None) -> float:
    """Return the gain of a pair from both distances to chance, None for a failed training."""
    if own is None:
        return -max(other or 0.0, 0.0)
    return own - other if other is not None else max(own, 0.0)


def judgement_table(console: Console, result: Judgement) -> None:
    """Print both mechanisms with their metrics and costs, the verdict and the evidence for it."""
    comparison_table(console, result.comparison)
    say(console, "", _verdict(result))
    if not result.is_ok:
        return
    unit, gain = result.comparison.metrics[result.task].unit, result.difference
    text = points(gain["median"], None, unit)
    if "low" in gain:
        text = points_between(gain["median"], gain["low"], gain["high"], unit)
        text += f" with {1 - LEVEL / result.places:.1%} confidence after any number of pairs"
    say(
        console,
        f"Difference over {plural(result.pairs, 'pair')} of equal seeds: median {text}; mean "
        f"{points(gain['mean'], None, unit)}.",
    )
    for claim, of in result.claims.items():
        say(console, _evidence(result, claim, of))
    say(console, _bound(result))
    if result.verdict == "better":
        say(
            console,
            "Both had the same steps, not the same time. A difference at the moment of a claim "
            "tends to be too large: `nas evaluate` of both with `--seeds 10` and the same task and "
            "data measures it with fresh seeds.",
        )


def _verdict(result: Judgement) -> str:
    subject, pairs = f"{result.source} under {result.task}", plural(result.pairs, "pair")
    if not result.is_ok:
        return f"{subject}: not comparable, because no training of {result.against} succeeded."
    if left := [f"{rate:g}" for rates in result.unbeaten.values() for rate in rates]:
        first, second = result.leader
        return (
            f"{subject}: undecided after {pairs}. At the chosen learning rates {first} is better "
            f"than {second}, but it is not shown to be better than {second} at "
            f"{' and '.join(left)}. The same command with larger --pairs or --minutes continues."
        )
    if result.verdict == "undecided":
        return (
            f"{subject}: undecided after {pairs}, which does not mean that it equals "
            f"{result.against}. The same command with larger --pairs or --minutes continues."
        )
    about = ABOUT[result.claim]
    return f"{subject}: {result.verdict} than {result.against} {about}, after {pairs}."


def _evidence(result: Judgement, claim: Claim, of: Decision) -> str:
    side = "better" if of.better >= of.worse else "worse"
    text = f"Evidence for {side} {ABOUT[claim]}: {max(of.better, of.worse):,.3g}"
    if of.verdict != "undecided":
        return f"{text}, a claim."
    if of.rates:
        return f"{text}, at the other one's other learning rates {min(of.rates.values()):,.3g}."
    if of.decided_after is None:
        return f"{text}; more than {MOST_PAIRS:,} pairs like these would be needed."
    return f"{text}; after about {of.decided_after} pairs like these it would be a claim."


def _bound(result: Judgement) -> str:
    unit = result.comparison.metrics[result.task].unit
    within = (
        f", over all {result.places} mechanisms of the record (this is number {result.place})"
        if result.places > 1
        else ""
    )
    return (
        f"A claim needs {result.needed:,.0f}; it is false with a probability of at most "
        f"{LEVEL:.0%}{within}, for gains of any distribution. A failed training counts as one that "
        "learned nothing, and in the mean a gain or loss counts at most "
        f"{quantity(result.cap, unit)}: rare failures are excluded by the mean alone."
    )
