"""The result of ``nas.judge``: whether one mechanism is better than another."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Final

from rich.console import Console

from nas.common.differences import LEVEL, Side
from nas.common.objectives import Metric
from nas.common.sequential import CLAIMS, Claim, Decision, decide, needed, typical_interval
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
        source, against: arguments that name the judged mechanism and the reference.
        task: name of the task.
        comparison: the trainings of both mechanisms, without a difference.
        claim: what the verdict is about: "typical" or "mean" (``nas.common.sequential``).
        claims: the result of each claim.
        difference: ``median`` and ``mean`` of the differences of the pairs; bounds ``low`` and
            ``high`` of an interval of the median that is valid after every number of pairs, from
            the eighth pair on.
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

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``nas judge --json`` prints."""
        return super().to_dict() | {"verdict": self.verdict, "pairs": self.pairs}


def make_judgement(
    source: str,
    against: str,
    task: str,
    rows: Sequence[TrainingRow],
    metric: Metric,
    claim: Claim,
    place: int,
    places: int,
) -> Judgement:
    """Return the judgement of a mechanism after ``rows``, trainings of both with the same seeds.

    A failed training counts as one that learned nothing: its metric is ``metric.chance``, or that
    of the other training of the pair if this is worse. A gain or loss counts at most the distance
    from chance to the first training of the reference that is better than chance (from chance to
    the ideal if none is). The pairs up to this training are no evidence about the mean, because the
    bound must not depend on the gains that it bounds.
    """
    ordered = sorted(rows, key=lambda row: (row.mechanism == source, row.repeat))
    comparison = compare(ordered, {task: task}, None, len(rows) // 2)
    sign = 1 if metric.direction == "max" else -1
    learned, base = (
        [None if value is None else sign * (value - metric.chance) for value in values]
        for values in (comparison.cells[task, name].values.values() for name in (source, against))
    )
    gains = [_gain(own, other) for own, other in zip(learned, base, strict=True)]
    differences = [sign * each for each in gains]
    above = ((i, distance) for i, distance in enumerate(base) if distance and distance > 0)
    first, cap = next(above, (-1, abs(metric.ideal - metric.chance)))
    start = first + 1
    evidence: dict[Claim, list[float]] = {"typical": gains, "mean": gains[start:]}
    bounds = typical_interval(differences, LEVEL / places) or ()
    return Judgement(
        source=source,
        against=against,
        task=task,
        comparison=comparison,
        claim=claim,
        claims={each: decide(evidence[each], each, cap, places) for each in CLAIMS},
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
            "Both had the same steps and learning rate, not the same time. A difference at the "
            "moment of a claim tends to be too large: `nas evaluate "
            f"{shlex.quote(result.against)} {shlex.quote(result.source)} "
            "--seeds 10`, with the same task and data, measures it with fresh seeds at the "
            "best of several rates.",
        )


def _verdict(result: Judgement) -> str:
    subject, pairs = f"{result.source} under {result.task}", plural(result.pairs, "pair")
    if not result.is_ok:
        return f"{subject}: not comparable, because no training of {result.against} succeeded."
    if result.verdict == "undecided":
        return (
            f"{subject}: undecided after {pairs}, which does not mean that it equals "
            f"{result.against}. The same command with larger --pairs or --minutes continues."
        )
    about = ABOUT[result.claim]
    return f"{subject}: {result.verdict} than {result.against} {about}, after {pairs}."


def _evidence(result: Judgement, claim: Claim, of: Decision) -> str:
    side = "better" if of.better >= of.worse else "worse"
    claimed = "" if of.verdict == "undecided" else ", a claim"
    return f"Evidence for {side} {ABOUT[claim]}: {max(of.better, of.worse):,.3g}{claimed}."


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
