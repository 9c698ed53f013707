"""The result of ``nas.judge``: whether one mechanism is better than another."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich.console import Console

from nas.common.differences import LEVEL, Side, paired
from nas.common.sequential import anytime_interval, decide, needed
from nas.common.text import plural
from nas.report.comparison import Comparison, TrainingRow, compare
from nas.report.comparison_table import comparison_table
from nas.report.result import Result
from nas.report.table import say
from nas.report.units import points, points_between


@dataclass(frozen=True)
class Judgement(Result):
    """The result of ``nas.judge``: whether one mechanism is better than another.

    Attributes:
        source, against: arguments that name the judged mechanism and the reference.
        task: name of the task.
        comparison: the trainings of both mechanisms, without a difference.
        verdict: "better", "worse" or "undecided"; None if a training failed.
        difference: ``mean`` difference over the pairs, and bounds ``low`` and ``high`` of an
            interval that is valid after every number of pairs; without bounds if there are too few
            pairs for finite ones or all differences are equal; None if a training failed.
        evidence: e-values of the claims "better" and "worse", the greatest of all numbers of pairs
            so far.
        needed: e-value from which a claim is made.
        place: place of the judged mechanism among those with trainings in the record, from 1; the
            reference is not counted.
        places: number of mechanisms over which the probability of false claims is bounded.
    """

    source: str
    against: str
    task: str
    comparison: Comparison
    verdict: Side | None
    difference: Mapping[str, float] | None
    evidence: Mapping[str, float]
    needed: float
    place: int
    places: int

    @property
    def is_ok(self) -> bool:
        """Whether no training failed."""
        return self.verdict is not None

    @property
    def pairs(self) -> int:
        """The number of pairs of trainings that share their seed."""
        return self.comparison.seeds

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``nas judge --json`` prints."""
        return super().to_dict() | {"pairs": self.pairs}


def make_judgement(
    source: str, against: str, task: str, rows: Sequence[TrainingRow], place: int, places: int
) -> Judgement:
    """Return the judgement of a mechanism after ``rows``, trainings of both with the same seeds."""
    pairs, metric = len({row.repeat for row in rows}), rows[0].metric
    ordered = sorted(rows, key=lambda row: (row.mechanism == source, row.repeat))
    comparison = compare(ordered, {task: task}, None, pairs)
    values = [comparison.cells[task, name].values for name in (source, against)]
    gains = paired(*values)
    decision, difference = decide(gains, metric.direction, places), None
    if gains:
        bounds = anytime_interval(gains, LEVEL / places) or ()
        difference = {"mean": fmean(gains), **dict(zip(("low", "high"), bounds, strict=False))}
    return Judgement(
        source=source,
        against=against,
        task=task,
        comparison=comparison,
        verdict=decision.side if gains else None,
        difference=difference,
        evidence={"better": decision.better, "worse": decision.worse},
        needed=needed(places),
        place=place,
        places=places,
    )


def judgement_table(console: Console, result: Judgement) -> None:
    """Print both mechanisms with their metrics and costs, the verdict and the evidence for it."""
    comparison_table(console, result.comparison)
    say(console, "", _sentence(result))
    if result.verdict is None:
        return
    unit = result.comparison.metrics[result.task].unit
    if result.difference is not None:
        gain = points(result.difference["mean"], None, unit)
        if "low" in result.difference:
            gain = points_between(**result.difference, unit=unit)
            gain += f" with {1 - LEVEL / result.places:.1%} confidence after any number of pairs"
        say(console, f"Difference over {plural(result.pairs, 'pair')} of equal seeds: {gain}.")
    claim = max(result.evidence, key=lambda key: result.evidence[key])
    within = (
        f"mechanism {result.place} of {result.places} in its record, over which the probability of "
        f"any false claim is at most {LEVEL:.0%}"
        if result.places > 1
        else f"the probability of a false claim is at most {LEVEL:.0%}"
    )
    say(
        console,
        f"Evidence for {claim}: {result.evidence[claim]:,.3g}; a claim needs {result.needed:,.0f} "
        f"({within}).",
    )
    if result.verdict == "better":
        say(
            console,
            "Both had the same steps and learning rate, not the same time. A difference at the "
            "moment of a claim tends to be too large: `nas evaluate "
            f"{shlex.quote(result.against)} {shlex.quote(result.source)} "
            f"--tasks {shlex.quote(result.task)} --seeds 10 --rates` measures it with fresh seeds "
            "at the best of several rates.",
        )


def _sentence(result: Judgement) -> str:
    pairs = plural(result.pairs, "pair")
    subject = f"{result.source} under {result.task}"
    if result.verdict is None:
        return f"{subject}: not comparable with {result.against}, because a training failed."
    if result.verdict == "undecided":
        return (
            f"{subject}: undecided after {pairs}, which does not mean that it equals "
            f"{result.against}. With --record, the same command with larger --pairs or --minutes "
            "continues."
        )
    return f"{subject}: {result.verdict} than {result.against}, after {pairs}."
