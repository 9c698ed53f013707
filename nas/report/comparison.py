"""Mechanisms compared with a reference: the result of ``nas.evaluate`` and ``nas.confirm``.

The parts of a comparison are tasks: those of ``nas.evaluate``, or "fresh", "long" and "test" of
``nas.confirm``. In each part all mechanisms are trained with the same seeds. The difference between
a mechanism and the reference is the mean difference of the metric over pairs of trainings that
share their seed, with its 95 % confidence interval and p-value by Student's t test
(``nas.common.differences``). If learning rates were tried, it is the difference at the best rates
(``nas.common.rates``). A mechanism is better or worse if p is below .05 after Holm's correction
over the mechanisms of the part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from nas.common.differences import (
    Difference,
    difference,
    holm,
    mean_and_error,
    paired,
    side_of,
    successful,
)
from nas.common.objectives import Metric, Objective
from nas.common.rates import CHOOSING_SEEDS, TunedScores, tune, tuned_difference
from nas.common.text import last_line
from nas.evaluation.trial import Evaluation
from nas.report.result import Result, data_frame

if TYPE_CHECKING:
    import pandas

SENSE: Final = {"max": "higher is better", "min": "lower is better"}
MARK: Final = "*"
MEASURED: Final = (
    f"{MARK} measured on a torch module: multiply-adds that torch's FlopCounterMode counted, and "
    "weights; what decoding would cost is not known."
)


@dataclass(frozen=True)
class TrainingRow:
    """One training of one mechanism in a part of a comparison.

    ``costs`` are the known total costs of the attention layers of the model, by name; they were
    measured if the mechanism is a user's torch module. ``metric`` is the first metric of the task,
    by which mechanisms are compared. ``learning_rate`` is None unless the task's rates are tried.
    """

    mechanism: str
    digest: str
    part: str
    repeat: int
    evaluation: Evaluation
    costs: Mapping[str, float]
    metric: Metric | Objective
    is_measured: bool = False
    learning_rate: float | None = None

    @property
    def value(self) -> float | None:
        """The value of the metric after the training; None if the training failed."""
        return self.evaluation.value(self.metric.name)

    def to_dict(self) -> dict[str, Any]:
        """Return the training as a JSON object."""
        place = {
            "mechanism": self.mechanism,
            "id": self.digest,
            "part": self.part,
            "repeat": self.repeat,
            "learning_rate": self.learning_rate,
        }
        return place | {k: v for k, v in self.evaluation.to_dict().items() if k != "reports"}


@dataclass(frozen=True)
class Cell(Result):
    """The trainings of one mechanism in one part of a comparison.

    Attributes:
        mean: mean of the metric over the successful trainings; None if all trainings failed.
        error: standard error of ``mean``; None for a single value.
        values: value of the metric by repeat; None for a failed training. If learning rates were
            tried, the values at the chosen rate of the seeds that did not choose it.
        failed: number of failed trainings by reason, at all rates.
        core_seconds: mean processor time of a successful training; None if all failed.
        difference: difference to the reference. None for the reference itself, and if a training of
            either mechanism failed (at each rate, if rates were tried).
        learning_rate: the chosen one; None if none were tried, or a training failed at each.
        rates: mean of the metric at each rate that was tried without a failed training.
    """

    mean: float | None
    error: float | None
    values: Mapping[int, float | None]
    failed: Mapping[str, int]
    core_seconds: float | None
    costs: Mapping[str, float]
    is_measured: bool
    difference: Difference | None
    learning_rate: float | None
    rates: Mapping[str, float]

    @property
    def seeds(self) -> int:
        """The number of trainings of which ``mean`` is the mean."""
        return len(successful(self.values))

    def to_dict(self) -> dict[str, Any]:
        """Return the cell as a JSON object, in which ``values`` is a list."""
        return super().to_dict() | {"values": [*self.values.values()]}


@dataclass(frozen=True)
class Row(Result):
    """The results of one mechanism by part of a comparison.

    ``absent`` are the reasons why the mechanism cannot be trained, by part. ``found`` is what the
    search had found, in a confirmation: ``score`` (mean of the search's own trainings), and
    ``estimate``, ``error`` and ``p`` of the search's model, each None if it is not known.
    """

    mechanism: str
    id: str
    parts: Mapping[str, Cell]
    absent: Mapping[str, str] = field(default_factory=dict)
    found: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison(Result):
    """Mechanisms compared with a reference under one or several tasks.

    Attributes:
        against: name of the reference; None if there is only one mechanism.
        seeds: number of trainings of which each mean in each part is a mean.
        metrics, tasks: metric and name of the task of each part.
        tuning: if learning rates were tried, ``trainings``, the number of further trainings (at
            other rates, or to choose the rate), and their ``core_seconds``; else None.
        test: whether metrics were measured on test sets instead of on validation examples.
        run: name of the run whose mechanisms were confirmed; else None.
    """

    against: str | None
    seeds: int
    metrics: Mapping[str, Metric | Objective]
    tasks: Mapping[str, str]
    rows: tuple[Row, ...]
    tuning: Mapping[str, float] | None
    test: bool
    run: str | None
    trained: tuple[TrainingRow, ...]

    @property
    def is_ok(self) -> bool:
        """Whether at least one training succeeded."""
        return any(row.evaluation.is_ok for row in self.trained)

    @cached_property
    def cells(self) -> Mapping[tuple[str, str], Cell]:
        """All results, by part and name of the mechanism."""
        return {
            (part, row.mechanism): cell for row in self.rows for part, cell in row.parts.items()
        }

    @cached_property
    def table(self) -> pandas.DataFrame:
        """One row for each mechanism and part, as a DataFrame."""
        return data_frame(
            {
                "mechanism": row.mechanism,
                "id": row.id,
                "part": part,
                "task": self.tasks[part],
                "metric": self.metrics[part].name,
                **row.found,
                "mean": cell.mean,
                "error": cell.error,
                "seeds": cell.seeds,
                "failed": sum(cell.failed.values()),
                "learning_rate": cell.learning_rate,
                **{
                    f"over_{f.name}": getattr(cell.difference, f.name, None)
                    for f in fields(Difference)
                },
                "core_seconds": cell.core_seconds,
                **cell.costs,
            }
            for row in self.rows
            for part, cell in row.parts.items()
        )

    @cached_property
    def trainings(self) -> pandas.DataFrame:
        """One row for each training, with its metrics and the mechanism's costs."""
        records = [row.to_dict() | dict(row.costs) for row in self.trained]
        return data_frame([{**r, **r.pop("metrics"), **r.pop("budget")} for r in records])

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the command prints with ``--json``."""
        return super().to_dict() | {"trained": [row.to_dict() for row in self.trained]}


def compare(
    trained: Sequence[TrainingRow],
    tasks: Mapping[str, str],
    against: str | None,
    seeds: int,
    *,
    absent: Mapping[str, Mapping[str, str]] | None = None,
    found: Mapping[str, Mapping[str, float | None]] | None = None,
    chosen: Mapping[str, float] = {},
    test: bool = False,
    run: str | None = None,
) -> Comparison:
    """Return the comparison of mechanisms, computed from their finished trainings.

    Mechanisms have the order of their first trainings in ``trained``, parts the order of ``tasks``.
    ``seeds`` is the number of reported trainings of each mechanism in each part. ``absent`` and
    ``found`` are those of ``Row``. ``chosen`` are the reported learning rates, else `tune`'s.
    """
    parts: dict[str, dict[str, list[TrainingRow]]] = {}
    for row in sorted(trained, key=lambda row: ([*tasks].index(row.part), row.repeat)):
        parts.setdefault(row.part, {}).setdefault(row.mechanism, []).append(row)
    metrics = {row.part: row.metric for row in trained}
    cells = {
        part: _compare_part(groups, metrics[part], against, chosen)
        for part, groups in parts.items()
    }
    digests = {row.mechanism: row.digest for row in trained}
    return Comparison(
        against=against,
        seeds=seeds,
        metrics={part: metrics[part] for part in parts},
        tasks=dict(tasks),
        rows=tuple(
            Row(
                name,
                digests.get(name, ""),
                {part: of_part[name] for part, of_part in cells.items() if name in of_part},
                (absent or {}).get(name, {}),
                (found or {}).get(name, {}),
            )
            for name in dict.fromkeys([*digests, *(absent or {})])
        ),
        tuning=_cost_of_tuning(trained, cells),
        test=test,
        run=run,
        trained=tuple(trained),
    )


def _compare_part(
    groups: Mapping[str, Sequence[TrainingRow]],
    metric: Metric | Objective,
    against: str | None,
    chosen: Mapping[str, float],
) -> dict[str, Cell]:
    """Return the results of one part by mechanism, with differences to the reference."""
    tuned = {name: tuned_scores(group, metric, chosen.get(name)) for name, group in groups.items()}
    cells = {name: cell_of(group, tuned[name]) for name, group in groups.items()}
    differences: dict[str, Difference] = {}
    for name, cell in cells.items():
        if against not in cells or name == against:
            continue
        if not (gains := paired(cell.values, cells[against].values)):
            continue
        if cell.rates or cells[against].rates:
            tested = tuned_difference(tuned[name], tuned[against], metric.direction)
        else:
            tested = difference(gains)
        mean, error = mean_and_error(gains)
        bounds = {bound: (tested or {}).get(bound) for bound in ("low", "high", "p")}
        differences[name] = Difference(mean, error, **bounds, p_holm=None, verdict="undecided")
    tested_ones = {name: lead.p for name, lead in differences.items() if lead.p is not None}
    for name, p in zip(tested_ones, holm([*tested_ones.values()]), strict=True):
        side = side_of(differences[name].mean, p, metric.direction)
        differences[name] = replace(differences[name], p_holm=p, verdict=side)
    return {name: replace(cell, difference=differences.get(name)) for name, cell in cells.items()}


def tuned_scores(
    group: Sequence[TrainingRow], metric: Metric | Objective, chosen: float | None = None
) -> TunedScores | None:
    """Return scores at the chosen learning rate, by default that which `tune` chooses."""
    scores: dict[float, dict[int, float | None]] = {}
    for row in group:
        if row.learning_rate is not None:
            scores.setdefault(row.learning_rate, {})[row.repeat] = row.value
    if chosen is None:
        return tune(scores, metric.direction)
    reported = {i: value for i, value in scores[chosen].items() if i >= CHOOSING_SEEDS}
    return TunedScores(chosen, {chosen: reported})


def cell_of(group: Sequence[TrainingRow], tuned: TunedScores | None = None) -> Cell:
    """Return the results of a mechanism's trainings in a part, without a difference."""
    own = {row.repeat: row.value for row in group if row.learning_rate is None}
    values = own if tuned is None else dict(tuned.values)
    scores = [*successful(values).values()]
    seconds = [row.evaluation.core_seconds for row in group if row.evaluation.is_ok]
    mean, error = mean_and_error(scores) if scores else (None, None)
    return Cell(
        mean=mean,
        error=error,
        values=values,
        failed=Counter(why(row.evaluation) for row in group if not row.evaluation.is_ok),
        core_seconds=fmean(seconds) if seconds else None,
        costs=dict(group[0].costs),
        is_measured=group[0].is_measured,
        difference=None,
        learning_rate=tuned.rate if tuned else None,
        rates={
            f"{rate:g}": fmean(kept.values())
            for rate, by_repeat in (tuned.by_rate if tuned else {}).items()
            if (kept := successful(by_repeat)) and len(kept) == len(by_repeat)
        },
    )


def _cost_of_tuning(
    trained: Sequence[TrainingRow], cells: Mapping[str, Mapping[str, Cell]]
) -> dict[str, float] | None:
    """Return number and core-seconds of the trainings that are not reported; None without rates."""
    if all(row.learning_rate is None for row in trained):
        return None

    def is_reported(row: TrainingRow) -> bool:
        cell = cells[row.part][row.mechanism]
        return row.learning_rate == cell.learning_rate and row.repeat in cell.values

    further = [row.evaluation.core_seconds for row in trained if not is_reported(row)]
    return {"trainings": len(further), "core_seconds": sum(further)}


def why(evaluation: Evaluation) -> str:
    """Return why a training failed, or which gate (bound on a task's metric) stopped it."""
    text = last_line(evaluation.error)
    if evaluation.status == "stopped":
        return f"stopped at the {text.partition(':')[0]}"
    return f"{evaluation.reason}: {text}"
