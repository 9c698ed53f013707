"""The table and the legend of a comparison, and the line on a finished training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from rich.console import Console

from nas.common.differences import LEVEL, Difference
from nas.common.rates import CHOOSING_SEEDS
from nas.common.text import plural
from nas.report.comparison import MARK, MEASURED, SENSE, Cell, Comparison, Row, TrainingRow, why
from nas.report.table import Column, Table, say, say_table
from nas.report.units import amount, header, points_between, quantity

T = TypeVar("T")


def training_line(training: TrainingRow, done: int, total: int) -> str:
    """Return one line on a finished training: part, mechanism, seed, result and time."""
    result, metric, value = training.evaluation, training.metric, training.value
    outcome = f"{result.status} ({result.reason})" if result.reason else why(result)
    if value is not None:
        outcome = f"{metric.name} {quantity(value, metric.unit)}"
    rate = "" if training.learning_rate is None else f" at rate {training.learning_rate:g}"
    count = f"{done}/{'at most ' if rate else ''}{total}"  # rates may be closed
    return (
        f"[{count}] {training.part}: {training.mechanism}{rate}, seed {training.repeat}: "
        f"{outcome}, {result.core_seconds:.1f} core s"
    )


def comparison_columns(result: Comparison) -> Iterator[Column[Row]]:
    """Yield the columns of the table of a comparison."""

    def found(name: str) -> Callable[[Row], float | None]:
        return lambda row: row.found.get(name)

    yield Column("mechanism", "mechanism", lambda row: row.mechanism, is_number=False)
    first, is_alone = next(iter(result.metrics)), len(result.metrics) == 1 and not result.run
    unit = result.metrics[first].unit
    if result.run:
        yield Column("score", "score", found("score"), unit, rank=2)
        yield Column("estimate", "estimate", found("estimate"), unit, found("error"), rank=2)
    for part, metric in result.metrics.items():
        title = header(metric.name, metric.unit) if is_alone else part
        yield _column(part, title, partial(mean_text, unit=metric.unit))
        if any(cell.difference for (of, _), cell in result.cells.items() if of == part):
            over, lead = f"over {result.against}", partial(_lead, part)
            yield from difference_columns(over, over, lead, metric.unit, rank=1)
        if result.tuning is not None:
            rate = lambda c: "" if c.learning_rate is None else f"{c.learning_rate:g}"  # noqa: E731
            yield _column(part, "rate", rate, rank=2)
    for name in dict.fromkeys(cost for cell in result.cells.values() for cost in cell.costs):
        yield _column(first, header(name), partial(_cost, name=name), rank=3)
    seconds = lambda cell: f"{cell.core_seconds:.1f}" if cell.core_seconds else ""  # noqa: E731
    yield _column(first, "core s", seconds, rank=4)


def _column(part: str, title: str, text: Callable[[Cell], str], rank: int = 0) -> Column[Row]:
    def value(row: Row) -> str:
        return (text(row.parts[part]) if part in row.parts else "") or "-"

    return Column(title, title, value, rank=rank)


def mean_text(cell: Cell, unit: str) -> str:
    """Return the mean of a cell with its error and, in brackets, the number of seeds."""
    return "" if cell.mean is None else f"{amount(cell.mean, unit, cell.error)} ({cell.seeds})"


def _lead(part: str, row: Row) -> Difference | None:
    return row.parts[part].difference if part in row.parts else None


def difference_columns(
    key: str, title: str, value: Callable[[T], Difference | None], unit: str, rank: int = 0
) -> Iterator[Column[T]]:
    """Yield the column of a difference, shown with its interval and a "?" if it is undecided.

    The following columns are its error and the ends of its interval, which are not shown.
    """

    def number(name: str, row: T) -> float | None:
        return getattr(value(row), name, None)

    def text(row: T) -> str:
        if (lead := value(row)) is None:
            return "-"
        shown = points_between(lead.mean, lead.low, lead.high, unit)
        return shown + (" ?" if lead.verdict == "undecided" else "  ")

    yield Column(key, title, partial(number, "mean"), unit, text=text, rank=rank, interval=value)
    for name in ("error", "low", "high"):
        yield Column(f"{key}_{name}", None, partial(number, name), unit)


def _cost(cell: Cell, name: str) -> str:
    return amount(cell.costs[name]) + MARK * cell.is_measured if name in cell.costs else ""


def comparison_table(console: Console, result: Comparison) -> None:
    """Print each mechanism's mean metrics, differences to the reference, costs and failures."""
    under = ", ".join(
        task if part == task else f"{part}: task {task}" for part, task in result.tasks.items()
    )
    metrics = [f"{header(m.name, m.unit)} ({SENSE[m.direction]})" for m in result.metrics.values()]
    of_run = f" in run {result.run}" if result.run else ""
    if result.metrics:
        say(console, f"{', '.join(dict.fromkeys(metrics))}{of_run}; {under}", "")
        say_table(console, Table([*comparison_columns(result)], result.rows))
        say(console, "", *comparison_legend(result))
    say_failures(console, result)


def say_failures(console: Console, result: Comparison) -> None:
    """Print why trainings failed, and why mechanisms were not trained."""
    for row in result.rows:
        for part, cell in row.parts.items():
            for reason, count in cell.failed.items():
                failed = f"{plural(count, 'training')} failed, {reason}"
                say(console, f"{row.mechanism}, {part}: {failed}")
        for part, reason in row.absent.items():
            say(console, f"{row.mechanism}, {part}: not trained, {reason}")


def comparison_legend(result: Comparison) -> list[str]:
    """Return the legend of the table of a comparison."""
    cells, lines = [*result.cells.values()], list[str]()
    if result.run:
        lines.append(
            "score: mean of the search's own trainings; estimate: predicted by the search's model."
        )
    lines.append("±: standard error of the mean; in brackets: the number of seeds.")
    if any(cell.difference for cell in cells):
        between = "trainings that share their seed"
        if result.tuning is not None:
            between = "mechanisms at their best learning rates, with equal seeds"
        lines += [
            f"over {result.against}: mean difference between {between} (of metrics in %, in "
            "points), and its 95 % interval.",
            f"?: undecided, which does not mean equal: p is {LEVEL} or more after Holm's "
            "correction over the mechanisms that are compared under one task; the intervals are "
            "not corrected.",
        ]
    if any(cell.failed for cell in cells):
        at = "" if result.tuning is None else " at each learning rate"
        lines.append(f"A mechanism with a failed training{at} has no difference.")
    if result.tuning is not None:
        lines.append(
            f"rate: learning rate, chosen for each mechanism by {CHOOSING_SEEDS} further seeds; "
            f"{result.tuning['trainings']:.0f} trainings, {result.tuning['core_seconds']:.0f} core "
            "s, are not shown."
        )
        lines += _edges(result)
    if any(cell.is_measured for cell in cells):
        lines.append(MEASURED)
    if result.test or "test" in result.tasks:
        lines.append("Judged on the test set, which no search sees.")
    return lines


def _edges(result: Comparison) -> list[str]:
    """Return sentences on chosen rates beyond which the task offers no other."""
    lines = []
    for end, which, further in ((min, "lowest", "lower"), (max, "highest", "higher")):
        rates = {
            part: end(row.learning_rate or 0.0 for row in result.trained if row.part == part)
            for part in result.metrics
        }
        names = [
            name if len(rates) == 1 else f"{name} ({part})"
            for (part, name), cell in result.cells.items()
            if cell.learning_rate == rates[part]
        ]
        if names:
            lines.append(
                f"At the {which} rate that the task offers, so that a {further} one may be better: "
                f"{', '.join(names)}."
            )
    return lines
