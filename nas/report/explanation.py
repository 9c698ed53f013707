"""The result of ``nas.explain``: the contribution of each part of a mechanism.

The mechanism is compared with mechanisms that were trained with the same seeds. The p-values of all
comparisons are corrected together (``nas.common.differences``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from nas.common.differences import LEVEL, Finding, findings, mean_and_error, paired, successful
from nas.common.objectives import Metric
from nas.compiler import formula_of, make_plan
from nas.evaluation.trial import Evaluation
from nas.explaining import Explanation
from nas.genome import Genome
from nas.genome.canonical import digest
from nas.report.comparison import why
from nas.report.result import Result
from nas.report.table import Column, Table, say, say_table
from nas.report.units import FRACTION, amount, header, points, signed

if TYPE_CHECKING:
    import pandas

# The verdict on an edit after which the mechanism is worse, better or the same.
OF_EDITS: Final = {"worse": "needed", "better": "harmful", "same": "harmless"}
# What the JSON object says of the explained mechanism.
OF_SOURCE: Final = ("id", "formula", "genome", "mean", "error", "values", "failed", "costs")
TITLES: Final = {"edits": "Edits of {source}", "controls": "Controls, beside {source}"}
ROWS: Final = {"edits": "edit", "controls": "control"}


@dataclass(frozen=True)
class ExplainRow(Result):
    """A trained mechanism of an explanation, compared with the explained one.

    ``mean``, ``error``, ``failed`` and ``costs`` are those of ``nas.report.comparison.Cell``;
    ``values`` are in the order of the seeds.

    Attributes:
        part: "edits", "controls", or "" of the explained mechanism itself.
        words: description of the edit, or name of the mechanism.
        difference: metric minus that of the explained mechanism, at equal seeds; None if a training
            failed.
        verdict: "needed", "harmful" or "harmless" for an edit; "better", "worse" or "same" for a
            control; "unresolved" if trainings failed or do not decide.
        added_costs: costs minus those of the explained mechanism, by name of the cost.
    """

    part: str
    words: str
    id: str
    formula: str
    genome: Genome
    mean: float | None
    error: float | None
    values: tuple[float | None, ...]
    failed: Mapping[str, int]
    costs: Mapping[str, float]
    difference: Finding | None = None
    verdict: str = ""
    added_costs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ExplainResult(Result):
    """The contribution of each part of a mechanism.

    ``margin`` is the largest difference that counts as zero, in the metric's unit. ``edits`` are
    the mechanism after one edit each; ``controls`` are standard attention, and variants of it that
    have similar costs.
    """

    source: str
    task: str
    metric: Metric
    margin: float
    seeds: int
    mechanism: ExplainRow
    edits: tuple[ExplainRow, ...]
    controls: tuple[ExplainRow, ...]

    @property
    def is_ok(self) -> bool:
        """Whether at least one training of the explained mechanism succeeded."""
        return self.mechanism.mean is not None

    @property
    def table(self) -> pandas.DataFrame:
        """One row for each comparison."""
        return Table(_columns(self), self.edits + self.controls).frame()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``nas explain --json`` prints."""
        answer = super().to_dict()
        mechanism = answer.pop("mechanism").items()
        return answer | {name: value for name, value in mechanism if name in OF_SOURCE}


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
        trained: trainings by ``Proposal.key`` of the mechanism, then by repeat.
        costs: total costs of the attention layers, by key, then by name of the cost.
    """
    scores = {
        key: {r: e.metrics[metric.name] if e.is_ok else None for r, e in sorted(own.items())}
        for key, own in trained.items()
    }

    def row(part: str, words: str, key: str, genome: Genome, **compared: Any) -> ExplainRow:
        values = [*successful(scores[key]).values()]
        mean, error = mean_and_error(values) if values else (None, None)
        return ExplainRow(
            part=part,
            words=words,
            id=digest(genome),
            formula=formula_of(make_plan(genome)),
            genome=genome,
            mean=mean,
            error=error,
            values=tuple(scores[key].values()),
            failed=Counter(why(e) for e in trained[key].values() if not e.is_ok),
            costs=dict(costs[key]),
            **compared,
        )

    gains = [paired(scores[change.key], scores[plan.source]) for change in plan.changes]
    rows: dict[str, list[ExplainRow]] = {part: [] for part in TITLES}
    found = findings(gains, margin, metric.direction)
    for change, finding in zip(plan.changes, found, strict=True):
        verdict: str = "unresolved" if finding is None else finding.verdict
        if change.part == "edits":
            verdict = OF_EDITS.get(verdict, verdict)
        before, after = costs[plan.source], costs[change.key]
        added = {name: cost - before[name] for name, cost in after.items()}
        compared = {"difference": finding, "verdict": verdict, "added_costs": added}
        entry = row(change.part, change.words, change.key, change.genome, **compared)
        rows[change.part].append(entry)
    return ExplainResult(
        source=source,
        task=task,
        metric=metric,
        margin=margin,
        seeds=seeds,
        mechanism=row("", source, plan.source, plan.genome),
        edits=tuple(rows["edits"]),
        controls=tuple(rows["controls"]),
    )


def explanation_table(console: Console, result: ExplainResult) -> None:
    """Print the explained mechanism and tables of its edits and controls."""
    metric, source, explained = result.metric, result.source, result.mechanism
    mean = "-" if explained.mean is None else amount(explained.mean, metric.unit, explained.error)
    seeds = f"{len(explained.values)} seeds"
    say(console, f"{source}   {explained.formula}")
    say(console, f"{header(metric.name, metric.unit)} {mean} under {result.task}, {seeds}")
    for part, title in TITLES.items():
        if rows := getattr(result, part):
            say(console, "", title.format(source=source))
            say_table(console, Table(_columns(result, ROWS[part]), rows))
    margin = points(result.margin, None, metric.unit).lstrip("+")
    what = f"points of {metric.name}" if metric.unit == FRACTION else metric.name
    say(
        console,
        "",
        f"difference: in {what}, of trainings that share their seed, ± its standard error; low, "
        "high: its 95 % interval.",
        f"needed, harmful: worse, better by the edit; harmless, same: less than {margin} either "
        f"way. All verdicts: p below {LEVEL} after Holm's correction over all rows.",
    )
    for row in (explained, *result.edits, *result.controls):
        for reason, count in row.failed.items():
            say(console, f"{row.words}: {count} of {len(row.values)} failed, {reason}")


def _columns(result: ExplainResult, title: str = "change") -> list[Column[ExplainRow]]:
    """Return the columns of the table of an explanation; ``title`` is that of the descriptions."""

    unit = result.metric.unit

    def found(name: str, title: str | None = None, rank: int = 0) -> Column[ExplainRow]:
        def value(row: ExplainRow) -> float | None:
            return getattr(row.difference, name, None)

        def text(row: ExplainRow) -> str:
            if row.difference is None:
                return "-"
            error = row.difference.error if name == "mean" else None
            return points(getattr(row.difference, name), error, unit)

        key = {"mean": "difference", "error": "difference_error"}.get(name, name)
        return Column(key, title, value, text=text, rank=rank)

    def added(name: str) -> Column[ExplainRow]:
        def cost(row: ExplainRow) -> float:
            return row.added_costs[name]

        return Column(f"added_{name}", header(name), cost, text=lambda r: signed(cost(r)), rank=2)

    def of(name: str, title: str | None = None, rank: int = 0) -> Column[ExplainRow]:
        return Column(name, title, lambda row: getattr(row, name), is_number=False, rank=rank)

    return [
        of("part"),
        of("words", title),
        of("id"),
        of("mean"),
        of("error"),
        found("mean", "difference"),
        found("error"),
        found("low", "low", rank=1),
        found("high", "high", rank=1),
        Column("pairs", "seeds", lambda row: getattr(row.difference, "pairs", None), rank=2),
        of("verdict", "verdict"),
        *map(added, result.mechanism.costs),
        of("formula", "formula", rank=3),
    ]
