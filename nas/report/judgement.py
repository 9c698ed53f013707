"""The result of ``nas.judge``: whether one mechanism is better than another."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.console import Console

from nas.common.differences import LEVEL, Side, paired, successful
from nas.common.objectives import Metric
from nas.common.sequential import anytime_interval, decide, needed
from nas.common.text import plural
from nas.costs import default_costs
from nas.report.benchmark import SENSE
from nas.report.result import MetricInfo, Result
from nas.report.table import TextColumn, say, say_table
from nas.report.trials import MEASURED, TrainingRow, cost_cell, why
from nas.report.units import amount, header, points, points_between
from nas.store.sources import AnyTrainable


@dataclass(frozen=True)
class Judgement(Result):
    """The result of ``nas.judge``: whether one mechanism is better than another.

    Attributes:
        source: argument that names the judged mechanism.
        against: argument that names the reference.
        id: digest of the judged mechanism.
        task: name of the task.
        metric: the task's metric.
        verdict: "better", "worse" or "undecided"; None if a training failed.
        values: values of the metric for each seed, of the judged mechanism.
        reference_values: values of the metric for the same seeds, of the reference.
        difference: ``mean`` difference over the pairs, and bounds ``low`` and ``high`` of an
            interval that is valid after every number of pairs; without bounds if there are too few
            pairs for finite ones or all differences are equal; None if a training failed.
        evidence: e-values of the claims "better" and "worse", the greatest of all numbers of pairs
            so far.
        needed: e-value from which a claim is made.
        place: place of the judged mechanism among those with trainings in the record, from 1; the
            reference is not counted.
        places: number of mechanisms over which the probability of false claims is bounded.
        failures: reasons of failed trainings.
        costs: costs of the attention layers, by SOURCE, then by name of the cost.
        measured: the mechanisms whose costs were measured, because they are torch modules.
        core_seconds: processor time of all trainings of the judgement.
        training_seconds: mean processor time of a training, by SOURCE.
    """

    source: str
    against: str
    id: str
    task: str
    metric: MetricInfo
    verdict: Side | None
    values: tuple[float, ...]
    reference_values: tuple[float, ...]
    difference: Mapping[str, float] | None
    evidence: Mapping[str, float]
    needed: float
    place: int
    places: int
    failures: tuple[str, ...]
    costs: Mapping[str, Mapping[str, float]]
    measured: tuple[str, ...]
    core_seconds: float
    training_seconds: Mapping[str, float]

    @property
    def is_ok(self) -> bool:
        """Whether no training failed."""
        return self.verdict is not None


def make_judgement(
    judged: AnyTrainable,
    reference: AnyTrainable,
    task: str,
    metric: Metric,
    rows: Sequence[TrainingRow],
    place: int,
    places: int,
) -> Judgement:
    """Return the judgement of a mechanism after some trainings of both mechanisms.

    Args:
        task: name of the task.
        rows: trainings of both mechanisms with the same seeds.
        place, places: see ``Judgement``.
    """
    scores = [
        {row.repeat: row.value for row in sorted(rows, key=lambda row: row.repeat) if row.name == n}
        for n in (judged.text, reference.text)
    ]
    failures = [f"{r.name}, seed {r.repeat}: {why(r.evaluation)}" for r in rows if r.value is None]
    gains = paired(*scores)
    decision = decide(gains, metric.direction, places)
    difference = None
    if gains:
        bounds = anytime_interval(gains, LEVEL / places)
        difference = {
            "mean": fmean(gains),
            **dict(zip(("low", "high"), bounds or (), strict=False)),
        }
    return Judgement(
        source=judged.text,
        against=reference.text,
        id=judged.mechanism_digest,
        task=task,
        metric=MetricInfo.of(metric),
        verdict=None if failures else decision.side,
        values=tuple(successful(scores[0]).values()),
        reference_values=tuple(successful(scores[1]).values()),
        difference=difference,
        evidence={"better": decision.better, "worse": decision.worse},
        needed=needed(places),
        place=place,
        places=places,
        failures=tuple(failures),
        costs={row.name: row.costs for row in rows},
        measured=tuple(dict.fromkeys(row.name for row in rows if row.is_measured)),
        core_seconds=sum(row.evaluation.core_seconds for row in rows),
        training_seconds={
            name: fmean(row.evaluation.core_seconds for row in rows if row.name == name)
            for name in dict.fromkeys(row.name for row in rows)
        },
    )


def judgement_table(console: Console, result: Judgement) -> None:
    """Print both mechanisms with their metrics and costs, the verdict and the evidence for it."""
    metric, pairs = result.metric, len(result.values)
    rows = [(result.against, result.reference_values), (result.source, result.values)]
    columns = [TextColumn("mechanism", [name for name, _ in rows])]
    means = [amount(sum(v) / len(v), metric.unit) if v else "-" for _, v in rows]
    columns.append(TextColumn(header(metric.name, metric.unit), means, "right"))
    for cost in default_costs():
        cells = [
            cost_cell(result.costs[name], cost, is_measured=name in result.measured)
            for name, _ in rows
        ]
        columns.append(TextColumn(header(cost), cells, "right"))
    seconds = [f"{result.training_seconds[name]:,.3g}" for name, _ in rows]
    columns.append(TextColumn("core s", seconds, "right"))
    say_table(console, columns)
    if result.measured:
        say(console, "", MEASURED)
    for failure in result.failures:
        say(console, failure)
    say(console, "", _sentence(result))
    if result.verdict is None:
        return
    if result.difference is not None:
        gain = points(result.difference["mean"], None, metric.unit)
        if "low" in result.difference:
            gain = points_between(**result.difference, unit=metric.unit)
            gain += f" with {1 - LEVEL / result.places:.1%} confidence after any number of pairs"
        say(console, f"Difference over {plural(pairs, 'pair')} of equal seeds: {gain}.")
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
        f"{metric.name}: {SENSE[metric.direction]}; core s: processor time of a training.",
    )
    if result.verdict == "better":
        say(
            console,
            "Both had the same steps and learning rate, not the same time. A difference at the "
            "moment of a claim tends to be too large: `nas benchmark "
            f"{shlex.quote(result.source)} --against {shlex.quote(result.against)} "
            f"--tasks {shlex.quote(result.task)} --rates` measures it with "
            "fresh seeds at the best of several rates.",
        )


def _sentence(result: Judgement) -> str:
    pairs = plural(len(result.values), "pair")
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
