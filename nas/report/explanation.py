"""The result of ``nas.explain``: the contribution of each part of a mechanism.

The result has two tables of comparisons with mechanisms that were trained with the same seeds:

    edits       the explained mechanism after one edit
    controls    standard attention, and its variants of similar costs

The p-values of all comparisons are corrected together (nas.common.differences). A mechanism with a
failed training has no difference, because its successful trainings are a biased sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from nas.common.differences import (
    LEVEL,
    Finding,
    findings,
    mean_and_error,
    paired,
    successful,
)
from nas.common.objectives import Metric
from nas.compiler import formula_of, make_plan
from nas.evaluation.trial import Evaluation
from nas.explaining import Explanation
from nas.genome import Genome
from nas.genome.canonical import digest
from nas.report.comparison import why
from nas.report.result import MetricInfo, Result, TableResult
from nas.report.table import TextColumn, say, say_table
from nas.report.units import FRACTION, amount, header, points, signed

# The verdict on an edit after which the mechanism is worse, better or the same.
OF_EDITS: Final = {"worse": "needed", "better": "harmful", "same": "harmless"}
TITLES: Final = {
    "edits": "Edits of {source}",
    "controls": "Controls, beside {source}",
}
ROWS: Final = {"edits": "edit", "controls": "control"}


@dataclass(frozen=True)
class ExplainedMechanism(Result):
    """A trained mechanism of an explanation.

    Attributes:
        id: digest of the mechanism.
        formula: the mechanism in a line of mathematics.
        mean: mean of the metric over the successful trainings; None if all trainings failed.
        error: standard error of ``mean``; None for fewer than two successful trainings.
        values: value of the metric for each seed, in order; None where the training failed.
        failed: number of failed trainings by reason.
        costs: total costs of the attention layers of the model, by name.
    """

    id: str
    formula: str
    genome: Genome
    mean: float | None
    error: float | None
    values: tuple[float | None, ...]
    failed: Mapping[str, int]
    costs: Mapping[str, float]


@dataclass(frozen=True)
class ExplainRow(Result):
    """A comparison of the explained mechanism with another one.

    Attributes:
        words: description of the edit, or name of the control.
        mechanism: the other mechanism.
        difference: the other mechanism's metric minus the explained one's, at equal seeds; None if
            a training failed.
        verdict: "needed", "harmful" or "harmless" for an edit; "better", "worse" or "same" for a
            control; "unresolved" if trainings failed or do not decide.
        added_costs: costs of the other mechanism minus the explained one's, by name of the cost.
    """

    words: str
    mechanism: ExplainedMechanism
    difference: Finding | None
    verdict: str
    added_costs: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as an entry of the JSON object of ``nas explain``."""
        entry = super().to_dict()
        return {"words": entry.pop("words"), **entry.pop("mechanism"), **entry}


@dataclass(frozen=True)
class ExplainResult(TableResult):
    """The contribution of each part of a mechanism.

    Attributes:
        source: argument SOURCE of ``nas explain``, which names the mechanism.
        task: name of the task of all trainings.
        metric: metric by which mechanisms are compared.
        margin: largest difference that counts as zero, in the metric's unit.
        seeds: number of trainings of each mechanism.
        mechanism: the explained mechanism.
        edits: comparisons of the mechanism with the mechanism after one edit.
        controls: comparisons of the mechanism with standard attention and with variants of standard
            attention that have similar costs.
    """

    source: str
    task: str
    metric: MetricInfo
    margin: float
    seeds: int
    mechanism: ExplainedMechanism
    edits: tuple[ExplainRow, ...]
    controls: tuple[ExplainRow, ...]

    @property
    def is_ok(self) -> bool:
        """Whether at least one training of the explained mechanism succeeded."""
        return self.mechanism.mean is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``nas explain --json`` prints."""
        answer = super().to_dict()
        mechanism: dict[str, Any] = answer.pop("mechanism")
        return answer | mechanism

    def records(self) -> list[dict[str, Any]]:
        """Return a dict for each comparison, with the names of table columns as keys."""
        return [
            {
                "part": part,
                "words": row.words,
                "id": row.mechanism.id,
                "mean": row.mechanism.mean,
                "error": row.mechanism.error,
                **{
                    f"difference_{name}": getattr(row.difference, name, None)
                    for name in ("mean", "error", "low", "high", "pairs")
                },
                "verdict": row.verdict,
                **{f"added_{name}": value for name, value in row.added_costs.items()},
                "formula": row.mechanism.formula,
            }
            for part in TITLES
            for row in getattr(self, part)
        ]


def make_explanation(
    source: str,
    task: str,
    metric: Metric,
    margin: float,
    seeds: int,
    plan: Explanation,
    trained: Mapping[str, Mapping[int, Evaluation]],
    costs: Mapping[str, Mapping[str, float]],
) -> ExplainResult:
    """Return the explanation of a mechanism, computed from finished trainings.

    Args:
        source, task, margin, seeds: see ``ExplainResult``.
        trained: trainings by ``Proposal.key`` of the mechanism, then by repeat.
        costs: total costs of the attention layers, by key, then by name of the cost.
    """
    scores = {
        key: {r: e.metrics[metric.name] if e.is_ok else None for r, e in sorted(own.items())}
        for key, own in trained.items()
    }

    def mechanism(key: str, genome: Genome) -> ExplainedMechanism:
        values = [*successful(scores[key]).values()]
        mean, error = mean_and_error(values) if values else (None, None)
        return ExplainedMechanism(
            id=digest(genome),
            formula=formula_of(make_plan(genome)),
            genome=genome,
            mean=mean,
            error=error,
            values=tuple(scores[key].values()),
            failed=Counter(why(e) for e in trained[key].values() if not e.is_ok),
            costs=dict(costs[key]),
        )

    gains = [paired(scores[change.key], scores[plan.source]) for change in plan.changes]
    rows: dict[str, list[ExplainRow]] = {part: [] for part in TITLES}
    found = findings(gains, margin, metric.direction)
    for change, finding in zip(plan.changes, found, strict=True):
        verdict: str = "unresolved" if finding is None else finding.verdict
        before, after = costs[plan.source], costs[change.key]
        rows[change.part].append(
            ExplainRow(
                words=change.words,
                mechanism=mechanism(change.key, change.genome),
                difference=finding,
                verdict=OF_EDITS.get(verdict, verdict) if change.part == "edits" else verdict,
                added_costs={name: cost - before[name] for name, cost in after.items()},
            )
        )
    return ExplainResult(
        source=source,
        task=task,
        metric=MetricInfo.of(metric),
        margin=margin,
        seeds=seeds,
        mechanism=mechanism(plan.source, plan.genome),
        edits=tuple(rows["edits"]),
        controls=tuple(rows["controls"]),
    )


def explanation_table(console: Console, result: ExplainResult) -> None:
    """Print the explained mechanism and tables of its edits and controls."""
    metric, unit, source, explained = (
        result.metric,
        result.metric.unit,
        result.source,
        result.mechanism,
    )
    mean = "-" if explained.mean is None else amount(explained.mean, unit, explained.error)
    seeds = f"{len(explained.values)} seeds"
    say(console, f"{source}   {explained.formula}")
    say(console, f"{header(metric.name, unit)} {mean} under {result.task}, {seeds}")
    parts: dict[str, tuple[ExplainRow, ...]] = {part: getattr(result, part) for part in TITLES}
    for part, title in TITLES.items():
        if parts[part]:
            say(console, "", title.format(source=source))
            say_table(console, _columns(part, parts[part], unit))
    margin = points(result.margin, None, unit).lstrip("+")
    what = f"points of {metric.name}" if unit == FRACTION else metric.name
    say(
        console,
        "",
        f"difference: in {what}, of trainings that share their seed, ± its standard error; low, "
        "high: its 95 % interval.",
        f"needed, harmful: worse, better by the edit; harmless, same: less than {margin} either "
        f"way. All verdicts: p below {LEVEL} after Holm's correction over all rows.",
    )
    rows = [(row.words, row.mechanism) for part in parts.values() for row in part]
    for words, mechanism in ((source, explained), *rows):
        for reason, count in mechanism.failed.items():
            say(console, f"{words}: {count} of {len(mechanism.values)} failed, {reason}")


def _columns(part: str, rows: Sequence[ExplainRow], unit: str) -> list[TextColumn]:
    differences = [row.difference for row in rows]

    def cells(text: Callable[[Finding], str]) -> list[str]:
        return [text(difference) if difference else "-" for difference in differences]

    costs = {cost: [signed(row.added_costs[cost]) for row in rows] for cost in rows[0].added_costs}
    return [
        TextColumn(ROWS[part], [row.words for row in rows]),
        TextColumn("difference", cells(lambda d: points(d.mean, d.error, unit)), "right"),
        TextColumn("low", cells(lambda d: points(d.low, None, unit)), "right", rank=1),
        TextColumn("high", cells(lambda d: points(d.high, None, unit)), "right", rank=1),
        TextColumn("seeds", cells(lambda d: str(d.pairs)), "right", rank=2),
        TextColumn("verdict", [row.verdict for row in rows]),
        *(TextColumn(header(cost), texts, "right", rank=2) for cost, texts in costs.items()),
        TextColumn("formula", [row.mechanism.formula for row in rows], rank=3),
    ]
