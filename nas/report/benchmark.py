"""The result of ``nas.benchmark``: mechanisms under several tasks, compared with a reference.

The difference between a mechanism and the reference is the mean difference of the metric over pairs
of trainings that share their seed. It has a 95 % confidence interval and a p-value by Student's
t-test. It is significant if p is below .05 after Holm's correction over all differences (Holm 1979,
"A simple sequentially rejective multiple test procedure"). See ``nas.common.differences`` for the
rules, also for mechanisms with a failed training.

If the tasks' learning rates were tried, mechanisms are compared at their best rates instead, see
``nas.common.rates``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any, Final

import numpy as np
from rich.console import Console

from nas.common.differences import (
    LEVEL,
    Side,
    difference,
    holm,
    mean_and_error,
    paired,
    side_of,
    successful,
)
from nas.common.objectives import Direction
from nas.common.rates import CHOOSING_SEEDS, TunedScores, tune, tuned_difference
from nas.report.result import MetricInfo, Result, TableResult
from nas.report.table import TextColumn, say, say_table
from nas.report.trials import ON_TEST, TrainingRow, why
from nas.report.units import amount, header

MARKS: Final[dict[Side | None, str]] = {"better": "+", "worse": "-", "undecided": "?", None: " "}
SENSE: Final = {"max": "higher is better", "min": "lower is better"}
MIN_MECHANISMS: Final = 10  # a rank correlation of fewer is too uncertain
NUM_DRAWS: Final = 1000


@dataclass(frozen=True)
class BenchmarkCell(Result):
    """The results of all trainings of one mechanism under one task of a benchmark.

    Attributes:
        mean: mean of the metric over the successful trainings; None if all trainings failed.
        error: standard error of ``mean``; None for fewer than two successful trainings.
        values: value of the metric for each seed, in order; None where the training failed.
        failed: number of failed trainings.
        reasons: number of failed trainings by reason.
        core_seconds: mean processor time of a successful training, in seconds; None if all failed.
        costs: total costs of the attention layers of the model, by name of the cost.
        difference: ``mean`` difference of the metric to the reference mechanism, bounds ``low`` and
            ``high`` of its confidence interval, p-value ``p``, and corrected p-value ``p_holm``.
            None for the reference, for a single seed, and if a training of either mechanism failed
            (at each rate, if rates were tried).
        verdict: "better", "worse" or "undecided", compared with the reference; None if
            ``difference`` is None.
        trainings: number of trainings, failed ones and those at all rates included.
        learning_rate: the chosen learning rate, if rates were tried; ``values`` are at this rate.
            None if they were not, or if a training failed at each rate.
        rates: mean of the metric at each rate without a failed training, over the seeds of
            ``values``, by rate; empty if rates were not tried.
    """

    mean: float | None
    error: float | None
    values: tuple[float | None, ...]
    failed: int
    reasons: Mapping[str, int]
    core_seconds: float | None
    costs: Mapping[str, float]
    difference: Mapping[str, float] | None
    verdict: Side | None
    trainings: int
    learning_rate: float | None
    rates: Mapping[str, float]

    @property
    def is_comparable(self) -> bool:
        """Whether no training failed, or a rate without a failed training was chosen."""
        return self.learning_rate is not None or not self.failed


@dataclass(frozen=True)
class BenchmarkRow(Result):
    """The results of one mechanism under all tasks of a benchmark.

    Attributes:
        source: argument SOURCE of the command, which names the mechanism.
        tasks: results of the mechanism, by name of the task.
        absent: reasons why the mechanism cannot be trained, by name of the task.
        id: digest of the mechanism.
    """

    source: str
    tasks: Mapping[str, BenchmarkCell]
    absent: Mapping[str, str]
    id: str


@dataclass(frozen=True)
class BenchmarkResult(TableResult):
    """The result of a benchmark: mechanisms under several tasks, compared with a reference.

    Attributes:
        against: argument SOURCE of the command that names the reference mechanism.
        seeds: number of trainings of each mechanism under each task that its results come from.
        tuning: if rates were tried, ``trainings``, the number of further trainings (at other rates,
            or to choose the rate), and their ``core_seconds``; else None.
        test: whether metrics were measured on test sets instead of on validation examples.
        tasks: metric of each task, by name of the task.
        rank_correlations: rank correlation of each pair of tasks, as yielded by the function
            ``rank_correlations``.
        mechanisms: the reference, then the other mechanisms in the order of the arguments.
    """

    against: str
    seeds: int
    tuning: Mapping[str, float] | None
    test: bool
    tasks: Mapping[str, MetricInfo]
    rank_correlations: tuple[Mapping[str, Any], ...]
    mechanisms: tuple[BenchmarkRow, ...]

    @property
    def is_ok(self) -> bool:
        """Whether at least one training succeeded."""
        return any(c.mean is not None for row in self.mechanisms for c in row.tasks.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``nas benchmark --json`` prints."""
        tasks = {
            task: {"metric": m.name, "unit": m.unit, "direction": m.direction}
            for task, m in self.tasks.items()
        }
        return super().to_dict() | {"tasks": tasks}

    def records(self) -> list[dict[str, Any]]:
        """Return a dict for each mechanism and task, with the names of table columns as keys."""
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
                "learning_rate": cell.learning_rate,
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
    """Return the benchmark of mechanisms, computed from their finished trainings.

    Args:
        digests: digest of each mechanism, by the argument SOURCE that names the mechanism; the
            first mechanism is the reference.
        trainings: all trainings by name of the task.
        absent: reasons why mechanisms cannot be trained, by task, then by SOURCE.
        seeds: number of trainings of each mechanism under each task.
        test: whether metrics were measured on test sets instead of on validation examples.
    """
    against = next(iter(digests))
    metrics = {t: MetricInfo.of(rows[0].metric) for t, rows in trainings.items() if rows}
    is_tuned = any(row.learning_rate is not None for rows in trainings.values() for row in rows)
    groups = {
        (task, source): sorted(
            (row for row in rows if row.name == source), key=lambda row: row.repeat
        )
        for task, rows in trainings.items()
        for source in digests
        if source not in absent[task]
    }
    tuned = {
        (task, source): _tune(group, seeds, metrics[task].direction)
        for (task, source), group in groups.items()
        if is_tuned
    }
    scores = {
        key: {row.repeat: row.value for row in _reported(group, tuned.get(key))}
        for key, group in groups.items()
    }
    differences: dict[tuple[str, str], dict[str, float]] = {}
    for key, own in scores.items():
        (task, source), base = key, (key[0], against)
        if source == against:
            continue
        if is_tuned:
            result = tuned_difference(tuned[key], tuned.get(base), metrics[task].direction)
        else:
            result = difference(paired(own, scores.get(base, {})))
        if result is not None:
            differences[key] = result
    corrected = holm([result["p"] for result in differences.values()])
    for result, p in zip(differences.values(), corrected, strict=True):
        result["p_holm"] = p
    cells: dict[str, dict[str, BenchmarkCell]] = {task: {} for task in trainings}
    for (task, source), group in groups.items():
        key, direction = (task, source), metrics[task].direction
        cells[task][source] = _cell(
            group, scores[key], tuned.get(key), differences.get(key), direction
        )
    signs = {task: 1 if metric.direction == "max" else -1 for task, metric in metrics.items()}
    ranked = {
        task: {n: sign * (c.mean or 0) for n, c in cells[task].items() if c.is_comparable}
        for task, sign in signs.items()
    }
    return BenchmarkResult(
        against=against,
        seeds=seeds,
        tuning=_cost_of_tuning(groups, tuned) if is_tuned else None,
        test=test,
        tasks=metrics,
        rank_correlations=tuple(rank_correlations(ranked)),
        mechanisms=tuple(
            BenchmarkRow(
                source,
                {task: group[source] for task, group in cells.items() if source in group},
                {task: group[source] for task, group in absent.items() if source in group},
                digest,
            )
            for source, digest in digests.items()
        ),
    )


def _tune(trainings: Sequence[TrainingRow], seeds: int, direction: Direction) -> TunedScores | None:
    scores: dict[float, dict[int, float | None]] = {}
    for row in trainings:
        if row.learning_rate is not None:
            scores.setdefault(row.learning_rate, {})[row.repeat] = row.value
    return tune(scores, seeds + CHOOSING_SEEDS, direction)


def _reported(trainings: Sequence[TrainingRow], tuned: TunedScores | None) -> Sequence[TrainingRow]:
    """Return the trainings whose values are reported: all, or those at the chosen rate."""
    if tuned is None:
        return [row for row in trainings if row.learning_rate is None]
    return [r for r in trainings if r.learning_rate == tuned.rate and r.repeat in tuned.values]


def _cost_of_tuning(
    groups: Mapping[tuple[str, str], Sequence[TrainingRow]],
    tuned: Mapping[tuple[str, str], TunedScores | None],
) -> dict[str, float]:
    """Return number and core-seconds of the trainings whose values are not reported."""
    further = [
        row.evaluation.core_seconds
        for key, group in groups.items()
        for row in group
        if row not in _reported(group, tuned[key])
    ]
    return {"trainings": len(further), "core_seconds": sum(further)}


def _cell(
    trainings: Sequence[TrainingRow],
    scores: Mapping[int, float | None],
    tuned: TunedScores | None,
    difference: Mapping[str, float] | None,
    direction: Direction,
) -> BenchmarkCell:
    values = [*successful(scores).values()]
    failures = [t.evaluation for t in trainings if not t.evaluation.is_ok]
    seconds = [t.evaluation.core_seconds for t in trainings if t.evaluation.is_ok]
    mean, error = mean_and_error(values) if values else (None, None)
    verdict = None
    if difference is not None:
        verdict = side_of(difference["mean"], difference["p_holm"], direction)
    return BenchmarkCell(
        mean=mean,
        error=error,
        values=tuple(scores.values()),
        failed=len(failures),
        reasons=Counter(map(why, failures)),
        core_seconds=fmean(seconds) if seconds else None,
        costs=dict(trainings[0].costs) if trainings else {},
        difference=difference,
        verdict=verdict,
        trainings=len(trainings),
        learning_rate=tuned.rate if tuned else None,
        rates={f"{r:g}": fmean(v.values()) for r, v in tuned.by_rate.items()} if tuned else {},
    )


def tuning_line(tuning: Mapping[str, float]) -> str:
    """Return a sentence about the rates, with the trainings and core-seconds that they cost."""
    return (
        f"rate: learning rate, chosen for each mechanism by {CHOOSING_SEEDS} further seeds. "
        f"Trainings whose values are not shown: {tuning['trainings']:.0f}, "
        f"{tuning['core_seconds']:.0f} core s."
    )


def rank_correlations(scores: Mapping[str, Mapping[str, float]]) -> Iterator[dict[str, Any]]:
    """Yield Spearman's rank correlation of the mechanisms' metrics for each pair of tasks.

    Pairs of tasks with fewer than ten common mechanisms are omitted.

    Args:
        scores: mean metric of each mechanism, by task, then by mechanism; higher is better.

    Yields:
        Names of the two ``tasks``, number of common ``mechanisms``, coefficient ``rho``, and bounds
        ``low`` and ``high`` of its 95 % bootstrap confidence interval.
    """
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    for first, second in combinations(scores, 2):
        shared = [name for name in scores[first] if name in scores[second]]
        if len(shared) < MIN_MECHANISMS:
            continue
        pairs = np.array([[scores[task][name] for name in shared] for task in (first, second)])
        size = (NUM_DRAWS, len(shared))
        drawn = pairs[:, np.random.default_rng(0).integers(len(shared), size=size)]
        ranks = rankdata(np.concatenate([pairs[:, None], drawn], axis=1), axis=2)
        x, y = ranks - ranks.mean(axis=2, keepdims=True)
        sizes = np.sqrt((x**2).sum(1) * (y**2).sum(1))
        rho = (x * y).sum(1) / np.where(sizes > 0, sizes, 1.0)
        low, high = np.quantile(rho[1:], (0.025, 0.975))
        interval = {"rho": float(rho[0]), "low": float(low), "high": float(high)}
        yield {"tasks": [first, second], "mechanisms": len(shared), **interval}


def benchmark_table(console: Console, result: BenchmarkResult) -> None:
    """Print a table of the mechanisms' mean metrics, errors and verdicts under each task."""
    columns = [TextColumn("mechanism", [row.source for row in result.mechanisms])]
    for task, metric in result.tasks.items():
        cells = [row.tasks.get(task) for row in result.mechanisms]
        shown = [
            ""
            if cell is None or cell.mean is None
            else f"{amount(cell.mean, metric.unit, cell.error)} {MARKS[cell.verdict]}"
            for cell in cells
        ]
        columns.append(TextColumn(task, shown, "right"))
        if result.tuning is not None:
            rates = [f"{c.learning_rate:g}" if c and c.learning_rate else "" for c in cells]
            columns.append(TextColumn("rate", rates, "right"))
    say_table(console, columns)
    units = [
        f"{task}: {header(metric.name, metric.unit)}, {SENSE[metric.direction]}"
        for task, metric in result.tasks.items()
    ]
    say(console, "", "; ".join(units) + ".")
    if result.test:
        say(console, ON_TEST)
    if result.seeds > 1:
        at, where = "", ""
        if result.tuning is not None:
            at, where = ", each mechanism at its best rate", " at each rate"
        say(
            console,
            f"±: standard error of the mean over {result.seeds} seeds.",
            f"+ better than {result.against}, - worse, ? undecided, which is not equal: pairs of "
            f"trainings that share their seed{at}, p below {LEVEL} after Holm's correction over "
            f"the whole table. A mechanism with a failed training{where} is not compared.",
        )
    if result.tuning is not None:
        say(console, tuning_line(result.tuning))
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
                failures = f"{count} of {cell.trainings} failed, {reason}"
                say(console, f"{row.source} under {task}: {failures}")
