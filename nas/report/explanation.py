"""The result of ``nas.explain``: the contribution of each part of a mechanism.

The mechanism is compared with mechanisms that were trained with the same seeds. The p-values of all
comparisons are corrected together (``nas.common.differences``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from nas.common.differences import LEVEL, Difference, findings, paired
from nas.common.objectives import Metric
from nas.compiler import formula_of, make_plan
from nas.explaining import Explanation
from nas.genome import Genome
from nas.genome.canonical import digest
from nas.report.comparison import Cell, TrainingRow, cell_of
from nas.report.comparison_table import difference_columns
from nas.report.result import Result
from nas.report.table import Column, Table, say, say_table
from nas.report.units import FRACTION, amount, header, points, signed

if TYPE_CHECKING:
    import pandas

# The verdict on an edit after which the mechanism is worse, better or the same.
OF_EDITS: Final = {"worse": "needed", "better": "harmful", "same": "harmless"}
TITLES: Final = {"edits": "Edits of {source}", "controls": "Controls, beside {source}"}


@dataclass(frozen=True)
class ExplainRow(Result):
    """A trained mechanism of an explanation, compared with the explained one.

    Attributes:
        part: "edits", "controls", or "" of the explained mechanism itself.
        words: description of the edit, or name of the mechanism.
        trained: results of its trainings, with the difference to the explained mechanism, whose
            verdict is "needed", "harmful" or "harmless" for an edit.
        added_costs: costs minus those of the explained mechanism, by name of the cost.
    """

    part: str
    words: str
    id: str
    formula: str
    genome: Mapping[str, Any]
    trained: Cell
    added_costs: Mapping[str, float]

    @property
    def difference(self) -> Difference | None:
        """The metric minus that of the explained mechanism; None if a training failed."""
        return self.trained.difference

    @property
    def verdict(self) -> str:
        """The verdict of the difference; "undecided" without one."""
        return self.difference.verdict if self.difference else "undecided"


@dataclass(frozen=True)
class ExplainResult(Result):
    """The contribution of each part of a mechanism.

    ``margin`` is the largest difference that counts as zero, in the metric's unit. ``edits`` are
    the mechanism after one edit each; ``controls`` are the reference, and variants of it that
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
        return self.mechanism.trained.mean is not None

    @property
    def table(self) -> pandas.DataFrame:
        """One row for each comparison."""
        return Table(explanation_columns(self), self.edits + self.controls).frame()


def make_explanation(
    source: str,
    task: str,
    metric: Metric,
    margin: float,
    seeds: int,
    plan: Explanation,
    trained: Mapping[str, Sequence[TrainingRow]],
) -> ExplainResult:
    """Return the explanation of a mechanism from finished trainings by ``Proposal.key``."""
    cells = {
        key: cell_of(sorted(rows, key=lambda row: row.repeat)) for key, rows in trained.items()
    }
    explained = cells[plan.source]

    def row(
        part: str, words: str, genome: Genome, cell: Cell, added: Mapping[str, float]
    ) -> ExplainRow:
        formula = formula_of(make_plan(genome))
        return ExplainRow(part, words, digest(genome), formula, genome.to_dict(), cell, added)

    gains = [paired(cells[change.key].values, explained.values) for change in plan.changes]
    rows: dict[str, list[ExplainRow]] = {part: [] for part in TITLES}
    found = findings(gains, margin, metric.direction)
    for change, finding in zip(plan.changes, found, strict=True):
        if finding is not None and change.part == "edits":
            finding = replace(finding, verdict=OF_EDITS.get(finding.verdict, finding.verdict))
        cell = replace(cells[change.key], difference=finding)
        added = {name: cost - explained.costs[name] for name, cost in cell.costs.items()}
        rows[change.part].append(row(change.part, change.words, change.genome, cell, added))
    return ExplainResult(
        source=source,
        task=task,
        metric=metric,
        margin=margin,
        seeds=seeds,
        mechanism=row("", source, plan.genome, explained, {}),
        edits=tuple(rows["edits"]),
        controls=tuple(rows["controls"]),
    )


def explanation_table(console: Console, result: ExplainResult) -> None:
    """Print the explained mechanism and tables of its edits and controls."""
    metric, source, explained = result.metric, result.source, result.mechanism.trained
    mean = "-" if explained.mean is None else amount(explained.mean, metric.unit, explained.error)
    say(console, f"{source}   {result.mechanism.formula}")
    name = header(metric.name, metric.unit)
    say(console, f"{name} {mean} under {result.task}, {result.seeds} seeds")
    for part, title in TITLES.items():
        if rows := getattr(result, part):
            say(console, "", title.format(source=source))
            say_table(console, Table(explanation_columns(result), rows))
    say(console, "", *explanation_legend(result))
    for row in (result.mechanism, *result.edits, *result.controls):
        for reason, count in row.trained.failed.items():
            say(console, f"{row.words}: {count} of {len(row.trained.values)} failed, {reason}")


def explanation_legend(result: ExplainResult) -> tuple[str, str]:
    """Return the legend of the tables of an explanation."""
    metric, margin = result.metric, points(result.margin, None, result.metric.unit).lstrip("+")
    what = f"points of {metric.name}" if metric.unit == FRACTION else metric.name
    return (
        f"difference: in {what}, of trainings that share their seed, and its 95 % interval.",
        "needed: the edit makes the mechanism worse; harmful: better; harmless, and same of a "
        f"control: by less than {margin} either way. A verdict needs p below {LEVEL} after Holm's "
        "correction over all rows (the intervals are not corrected); undecided is not equal.",
    )


def explanation_columns(result: ExplainResult) -> list[Column[ExplainRow]]:
    """Return the columns of the table of an explanation."""

    def added(name: str) -> Column[ExplainRow]:
        def cost(row: ExplainRow) -> float:
            return row.added_costs[name]

        is_shown = any(map(cost, result.edits + result.controls))
        shown = header(name) if is_shown else None
        return Column(f"added_{name}", shown, cost, text=lambda r: signed(cost(r)), rank=2)

    def of(name: str, title: str | None = None, rank: int = 0) -> Column[ExplainRow]:
        return Column(name, title, lambda row: getattr(row, name), is_number=False, rank=rank)

    unit, costs = result.metric.unit, result.mechanism.trained.costs
    return [
        of("part"),
        of("words", "mechanism"),
        of("id"),
        Column("mean", None, lambda row: row.trained.mean),
        of("verdict", "verdict"),
        *difference_columns("difference", "difference", lambda row: row.difference, unit),
        Column("seeds", None, lambda row: row.trained.seeds),
        *map(added, costs),
        of("formula", "formula", rank=3),
    ]
