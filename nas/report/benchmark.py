"""The result of ``nas.benchmark``: mechanisms under several tasks, compared with one of them.

A difference is the mean over pairs of trainings that share their seed, with the interval of
Student's t at 95 %. A verdict needs p below .05 after Holm's correction over all differences (Holm
1979, "A simple sequentially rejective multiple test procedure"). A mechanism with a failed training
gets no difference: the successful ones are a biased sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from rich.console import Console

from nas.common.differences import LEVEL, difference, holm, mean_and_error, paired
from nas.report.ranks import rank_correlations
from nas.report.result import MetricInfo, Result, TableResult
from nas.report.table import TextColumn, say, say_table
from nas.report.trials import ON_TEST, TrainingRow, why
from nas.report.units import amount, header

MARKS: Final = {"better": "+", "worse": "-", "undecided": "=", None: " "}
SENSE: Final = {"max": "higher is better", "min": "lower is better"}


@dataclass(frozen=True)
class BenchmarkCell(Result):
    """Trainings of one mechanism under one task.

    Attributes:
        mean, error: mean of the metric over seeds, and its standard error; None if all failed.
        values: the metric by repeat; None where a training failed.
        failed: number of failed trainings.
        reasons: how often trainings failed, by reason.
        core_seconds: mean core time of successful trainings.
        costs: costs of all attention layers, by name.
        difference: ``mean``, ``low``, ``high``, ``p`` and ``p_holm`` of the paired difference to
            the reference; None for the reference, or if a training of either failed.
        verdict: "better", "worse", "undecided", or None without a difference.
    """

    mean: float | None
    error: float | None
    values: tuple[float | None, ...]
    failed: int
    reasons: Mapping[str, int]
    core_seconds: float | None
    costs: Mapping[str, float]
    difference: Mapping[str, float] | None
    verdict: str | None


@dataclass(frozen=True)
class BenchmarkRow(Result):
    """One mechanism under all tasks.

    Attributes:
        source: the SOURCE as given.
        tasks: trainings by task.
        absent: reasons why the mechanism cannot be trained, by task.
        id: digest of the mechanism.
    """

    source: str
    tasks: Mapping[str, BenchmarkCell]
    absent: Mapping[str, str]
    id: str


@dataclass(frozen=True)
class BenchmarkResult(TableResult):
    """Mechanisms under several tasks, each compared with one of them.

    Attributes:
        against: SOURCE of the reference.
        seeds: trainings of each mechanism under each task.
        test: whether test sets were used in place of examples held out of training.
        tasks: the metric of each task.
        rank_correlations: Spearman's coefficient of each pair of tasks, with its interval.
        mechanisms: the reference, then the others in the order given.
    """

    against: str
    seeds: int
    test: bool
    tasks: Mapping[str, MetricInfo]
    rank_correlations: tuple[Mapping[str, Any], ...]
    mechanisms: tuple[BenchmarkRow, ...]

    @property
    def is_ok(self) -> bool:
        """Whether at least one training ended well."""
        return any(c.mean is not None for row in self.mechanisms for c in row.tasks.values())

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of ``nas benchmark``."""
        tasks = {
            task: {"metric": m.name, "unit": m.unit, "direction": m.direction}
            for task, m in self.tasks.items()
        }
        return super().to_dict() | {"tasks": tasks}

    def records(self) -> list[dict[str, Any]]:
        """A row for each mechanism and task."""
        empty = dict.fromkeys(("mean", "low", "high", "p", "p_holm"))
        return [
            {
                "source": row.source,
                "id": row.id,
                "task": task,
                "metric": self.tasks[task].name,
                "mean": cell.mean,
                "error": cell.error,
                "failed": cell.failed,
                **{f"difference_{k}": v for k, v in {**empty, **(cell.difference or {})}.items()},
                "verdict": cell.verdict,
                **cell.costs,
            }
            for row in self.mechanisms
            for task, cell in row.tasks.items()
        ]


def make_benchmark(
    digests: Mapping[str, str],
    trainings: Mapping[str, Sequence[TrainingRow]],
    absent: Mapping[str, Mapping[str, str]],
    seeds: int,
    *,
    test: bool = False,
) -> BenchmarkResult:
    """Compare mechanisms by their trainings.

    Args:
        digests: digests of mechanisms by SOURCE; the first is the reference.
        trainings: all trainings by task.
        absent: reasons why a SOURCE cannot be trained, by task and SOURCE.
        seeds: trainings of each mechanism under each task.
        test: whether test sets were used.
    """
    against, *_ = sources = list(digests)
    present = {task: [s for s in sources if s not in absent[task]] for task in trainings}
    rows = {
        (task, source): [training for training in trainings[task] if training.name == source]
        for task in trainings
        for source in present[task]
    }
    values = {key: _values(group) for key, group in rows.items()}
    differences = {
        (task, source): difference(paired(values[task, source], values[task, against]))
        for task, source in rows
        if source != against
        and against in present[task]
        and all(t.evaluation.is_ok for name in (source, against) for t in rows[task, name])
    }
    compared = [result for result in differences.values() if result]
    for result, p in zip(compared, holm([result["p"] for result in compared]), strict=True):
        result["p_holm"] = p
    metrics = {t: MetricInfo.of(group[0].metric) for t, group in trainings.items() if group}
    cells = {
        task: {
            source: _cell(rows[task, source], differences.get((task, source)), metrics[task], seeds)
            for source in present[task]
        }
        for task in trainings
    }
    return BenchmarkResult(
        against=against,
        seeds=seeds,
        test=test,
        tasks=metrics,
        rank_correlations=tuple(rank_correlations(_ranked(cells, metrics))),
        mechanisms=tuple(
            BenchmarkRow(
                source,
                {task: group[source] for task, group in cells.items() if source in group},
                {task: group[source] for task, group in absent.items() if source in group},
                digests[source],
            )
            for source in sources
        ),
    )


def benchmark_table(console: Console, result: BenchmarkResult) -> None:
    """Print a row for each mechanism and a column for each task: mean, error, and verdict."""
    columns = [TextColumn("mechanism", [row.source for row in result.mechanisms])]
    for task, metric in result.tasks.items():
        shown = [_shown(row.tasks.get(task), metric.unit) for row in result.mechanisms]
        columns.append(TextColumn(task, shown, "right"))
    say_table(console, columns)
    units = [
        f"{task}: {header(metric.name, metric.unit)}, {SENSE[metric.direction]}"
        for task, metric in result.tasks.items()
    ]
    say(console, "", "; ".join(units) + ".")
    if result.test:
        say(console, ON_TEST)
    if result.seeds > 1:
        say(
            console,
            f"±: standard error of the mean over {result.seeds} seeds.",
            f"+ better than {result.against}, - worse, = undecided: pairs of trainings that "
            f"share their seed, p below {LEVEL} after Holm's correction over the whole table.",
        )
    for pair in result.rank_correlations:
        first, second = pair["tasks"]
        say(
            console,
            f"{first} and {second}: Spearman's rank correlation {pair['rho']:.2f} "
            f"[{pair['low']:.2f}, {pair['high']:.2f}] over {pair['mechanisms']} mechanisms.",
        )
    for row in result.mechanisms:
        for task, reason in row.absent.items():
            say(console, f"{row.source} under {task}: {reason}")
        for task, cell in row.tasks.items():
            for reason, count in cell.reasons.items():
                failures = f"{count} of {result.seeds} failed, {reason}"
                say(console, f"{row.source} under {task}: {failures}")


def _ranked(
    cells: Mapping[str, Mapping[str, BenchmarkCell]], metrics: Mapping[str, MetricInfo]
) -> dict[str, dict[str, float]]:
    """Means of mechanisms without failures, by task and mechanism; higher is better."""
    signs = {task: 1 if metric.direction == "max" else -1 for task, metric in metrics.items()}
    return {
        task: {n: signs[task] * (cell.mean or 0) for n, cell in group.items() if not cell.failed}
        for task, group in cells.items()
        if task in signs
    }


def _values(trainings: Sequence[TrainingRow]) -> dict[int, float]:
    """The metric of successful trainings by repeat."""
    return {
        training.repeat: training.evaluation.metrics[training.metric.name]
        for training in sorted(trainings, key=lambda training: training.repeat)
        if training.evaluation.is_ok
    }


def _cell(
    trainings: Sequence[TrainingRow],
    difference: Mapping[str, float] | None,
    metric: MetricInfo,
    seeds: int,
) -> BenchmarkCell:
    values = _values(trainings)
    failures = [t.evaluation for t in trainings if not t.evaluation.is_ok]
    seconds = [t.evaluation.core_seconds for t in trainings if t.evaluation.is_ok]
    mean, error = mean_and_error([*values.values()]) if values else (None, None)
    return BenchmarkCell(
        mean=mean,
        error=error,
        values=tuple(values.get(repeat) for repeat in range(seeds)),
        failed=len(failures),
        reasons=Counter(map(why, failures)),
        core_seconds=fmean(seconds) if seconds else None,
        costs=dict(trainings[0].costs) if trainings else {},
        difference=difference,
        verdict=_verdict(difference, metric.direction),
    )


def _verdict(difference: Mapping[str, float] | None, direction: str) -> str | None:
    if difference is None:
        return None
    if difference["p_holm"] >= LEVEL:
        return "undecided"
    return "better" if (difference["mean"] > 0) == (direction == "max") else "worse"


def _shown(cell: BenchmarkCell | None, unit: str) -> str:
    if cell is None or cell.mean is None:
        return ""
    return f"{amount(cell.mean, unit, cell.error)} {MARKS[cell.verdict]}"
