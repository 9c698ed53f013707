"""The table and the legend of a comparison, and the line on a finished training."""

from __future__ import annotations

from rich.console import Console

from nas.common.differences import LEVEL
from nas.common.rates import CHOOSING_SEEDS
from nas.common.text import plural
from nas.report.comparison import (
    MARK,
    MEASURED,
    SENSE,
    Cell,
    Comparison,
    Difference,
    TrainingRow,
    why,
)
from nas.report.table import TextColumn, say, say_table
from nas.report.units import FRACTION, amount, header, points, points_between, quantity


def training_line(training: TrainingRow, done: int, total: int) -> str:
    """Return one line on a finished training: part, mechanism, seed, result and time."""
    result, metric, value = training.evaluation, training.metric, training.value
    outcome = f"{result.status} ({result.reason})" if result.reason else why(result)
    if value is not None:
        outcome = f"{metric.name} {quantity(value, metric.unit)}"
    rate = "" if training.learning_rate is None else f" at rate {training.learning_rate:g}"
    return (
        f"[{done}/{total}] {training.part}: {training.mechanism}{rate}, seed {training.repeat}: "
        f"{outcome}, {result.core_seconds:.1f} core s"
    )


def difference_text(lead: Difference | None, unit: str) -> str:
    """Return a difference with its interval: with "?" if it is undecided, "-" if it is None."""
    if lead is None:
        return "-"
    is_single = lead.low is None or lead.high is None
    shown = points(lead.mean, None, unit)
    if not is_single:
        shown = points_between(lead.mean, lead.low, lead.high, unit)  # type: ignore[arg-type]
    return shown + (" ?" if lead.verdict == "undecided" else "  ")


def comparison_columns(result: Comparison) -> list[TextColumn]:
    """Return the columns of the table of a comparison."""
    rows = result.rows
    columns = [TextColumn("mechanism", [row.mechanism for row in rows])]
    first = next(iter(result.metrics.values()))
    for name in ("score", "estimate") if result.run else ():
        errors = [row.found.get("error") if name == "estimate" else None for row in rows]
        values = [row.found.get(name) for row in rows]
        cells = [
            "-" if value is None else amount(value, first.unit, error)
            for value, error in zip(values, errors, strict=True)
        ]
        columns.append(TextColumn(name, cells, "right", rank=2))
    is_alone = len(result.metrics) == 1 and not result.run
    for part, metric in result.metrics.items():
        found = [row.parts.get(part) for row in rows]
        means = ["-" if c is None or c.mean is None else _mean(c, metric.unit) for c in found]
        title = header(metric.name, metric.unit) if is_alone else part
        columns.append(TextColumn(title, means, "right"))
        leads = ["" if c is None else difference_text(c.difference, metric.unit) for c in found]
        if any(c is not None and c.difference is not None for c in found):
            columns.append(TextColumn(f"over {result.against}", leads, "right", rank=1))
        if result.tuning is not None:
            rates = [c.learning_rate if c is not None else None for c in found]
            shown = ["-" if rate is None else f"{rate:g}" for rate in rates]
            columns.append(TextColumn("rate", shown, "right", rank=2))
    part = next(iter(result.metrics))
    found = [row.parts.get(part) for row in rows]
    for cost in dict.fromkeys(cost for cell in found if cell is not None for cost in cell.costs):
        cells = ["-" if cell is None else _cost(cell, cost) for cell in found]
        columns.append(TextColumn(header(cost), cells, "right", rank=3))
    seconds = ["-" if c is None or not c.core_seconds else f"{c.core_seconds:.1f}" for c in found]
    return [*columns, TextColumn("core s", seconds, "right", rank=4)]


def _mean(cell: Cell, unit: str) -> str:
    return f"{amount(cell.mean or 0.0, unit, cell.error)} ({cell.seeds})"


def _cost(cell: Cell, name: str) -> str:
    return amount(cell.costs[name]) + MARK * cell.is_measured if name in cell.costs else "-"


def comparison_table(console: Console, result: Comparison) -> None:
    """Print each mechanism's mean metrics, differences to the reference, costs and failures."""
    under = ", ".join(
        task if part == task else f"{part}: task {task}" for part, task in result.tasks.items()
    )
    metrics = [f"{header(m.name, m.unit)} ({SENSE[m.direction]})" for m in result.metrics.values()]
    of_run = f" in run {result.run}" if result.run else ""
    if result.metrics:
        say(console, f"{', '.join(dict.fromkeys(metrics))}{of_run}; {under}", "")
        say_table(console, comparison_columns(result))
        say(console, "", *comparison_legend(result))
    for row in result.rows:
        for part, cell in row.parts.items():
            for reason, count in cell.failed.items():
                say(
                    console,
                    f"{row.mechanism}, {part}: {plural(count, 'training')} failed, {reason}",
                )
        for part, reason in row.absent.items():
            say(console, f"{row.mechanism}, {part}: not trained, {reason}")


def comparison_legend(result: Comparison) -> list[str]:
    """Return the legend of the table of a comparison."""
    cells = [*result.cells.values()]
    leads = [cell.difference for cell in cells if cell.difference is not None]
    lines = []
    if result.run:
        lines.append("score: mean of the search's own trainings; estimate: of the search's model.")
    lines.append("±: standard error of the mean; in brackets: the number of seeds.")
    if leads:
        what = "points of metrics in % and in the unit of other metrics"
        units = {metric.unit for metric in result.metrics.values()}
        if units == {FRACTION} or FRACTION not in units:
            what = "points" if FRACTION in units else "the metric's unit"
        between = "trainings that share their seed"
        if result.tuning is not None:
            between = "mechanisms at their best learning rates, with equal seeds"
        lines += [
            f"over {result.against}: mean difference in {what} between {between}, and its 95 % "
            "interval.",
            f"?: undecided, which does not mean equal: p is {LEVEL} or more after Holm's "
            "correction over the mechanisms of a column.",
        ]
    if any(cell.failed for cell in cells):
        at = "" if result.tuning is None else " at each learning rate"
        lines.append(f"A mechanism with a failed training{at} has no difference.")
    if result.tuning is not None:
        lines.append(
            f"rate: learning rate, chosen for each mechanism by {CHOOSING_SEEDS} further seeds. "
            f"Trainings whose values are not shown: {result.tuning['trainings']:.0f}, "
            f"{result.tuning['core_seconds']:.0f} core s."
        )
    if any(cell.is_measured for cell in cells):
        lines.append(MEASURED)
    if result.test or "test" in result.tasks:
        lines.append("Judged on the test set, which no search sees.")
    return lines
