"""The result of ``nas.evaluate``: mechanisms trained without a search, with standard errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console

from nas.common.differences import mean_and_error, paired
from nas.common.objectives import Metric, Objective
from nas.common.text import last_line
from nas.costs import default_costs
from nas.evaluation.trial import Evaluation
from nas.report.result import TableResult
from nas.report.table import TextColumn, say, say_table
from nas.report.units import FRACTION, amount, header, quantity

ON_TEST: Final = "Judged on the test set."


@dataclass(frozen=True)
class TrainingRow:
    """One training of one mechanism.

    Attributes:
        name: the SOURCE as given.
        digest: digest of the mechanism.
        repeat: index of the training, from 0.
        costs: costs of all attention layers, by name.
        metric: the task's first metric, by which mechanisms are compared.
    """

    name: str
    digest: str
    repeat: int
    evaluation: Evaluation
    costs: Mapping[str, float]
    metric: Metric | Objective

    def to_dict(self) -> dict[str, Any]:
        """An entry of ``evaluations`` in the JSON of ``nas evaluate``."""
        result = self.evaluation
        return {
            "id": self.digest,
            "source": self.name,
            "repeat": self.repeat,
            "seed": result.seed,
            "status": result.status,
            "reason": result.reason,
            "objectives": {**result.to_dict()["metrics"], **self.costs} if result.is_ok else {},
            "core_seconds": result.core_seconds,
            "wall_seconds": result.wall_seconds,
            "peak_memory_bytes": result.peak_memory_bytes,
            "budget": asdict(result.budget),
            "hardware": result.hardware,
            "error": result.error,
        }


@dataclass(frozen=True)
class EvaluateResult(TableResult):
    """Trainings of mechanisms under one task, without a search.

    Attributes:
        task: the task argument.
        test: whether the test set was used in place of examples held out of training.
        trainings: sorted by mechanism, in the order of the arguments, then by repeat.
    """

    task: str
    test: bool
    trainings: tuple[TrainingRow, ...]

    @property
    def is_ok(self) -> bool:
        """Whether at least one training ended well."""
        return any(training.evaluation.is_ok for training in self.trainings)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of ``nas evaluate``."""
        rows = [training.to_dict() for training in self.trainings]
        return {"task": self.task, "test": self.test, "evaluations": rows}

    def records(self) -> list[dict[str, Any]]:
        """A row for each training; metrics and costs are columns."""
        records = []
        for training in self.trainings:
            entry = training.to_dict()
            objectives = entry.pop("objectives")
            del entry["budget"]
            records.append({**entry, **training.costs, **objectives})
        return records


def trial_line(training: TrainingRow, done: int, total: int) -> str:
    """One line for a finished training."""
    result, metric = training.evaluation, training.metric
    outcome = f"{result.status} ({result.reason})" if result.reason else why(result)
    if result.is_ok:
        outcome = f"{metric.name} {quantity(result.metrics[metric.name], metric.unit)}"
    seconds = f"{result.core_seconds:.1f} core s"
    return f"[{done}/{total}] {training.name}, seed {training.repeat}: {outcome}, {seconds}"


def trial_table(console: Console, result: EvaluateResult) -> None:
    """Print a row for each mechanism: means, standard errors, costs, and failures.

    Differences are to the first mechanism, between trainings that share their seed.
    """
    trainings = result.trainings
    metric, ok = trainings[0].metric, [t for t in trainings if t.evaluation.is_ok]
    rows = {t.name: [row for row in trainings if row.name == t.name] for t in trainings}
    values = {
        name: {t.repeat: t.evaluation.metrics[metric.name] for t in ok if t.name == name}
        for name in rows
    }
    seconds = [[t.evaluation.core_seconds for t in ok if t.name == name] for name in rows]
    first = next(iter(rows))
    cells = {
        header(metric.name, metric.unit): [_mean(v.values(), metric) for v in values.values()],
        f"over {first}": [
            "-" if name == first else _over(scores, values[first], metric)
            for name, scores in values.items()
        ],
        **{
            header(c): [amount(group[0].costs[c]) for group in rows.values()]
            for c in default_costs()
        },
        "core s": [f"{mean_and_error(times)[0]:.1f}" if times else "-" for times in seconds],
        "trained": [str(len(scores)) for scores in values.values()],
        "failed": [str(len(group) - len(values[name])) for name, group in rows.items()],
    }
    numbers = [TextColumn(title, column, "right") for title, column in cells.items()]
    say_table(console, [TextColumn("mechanism", [*rows]), *numbers])
    if result.test:
        say(console, "", ON_TEST)
    if any(len(group) > 1 for group in rows.values()):
        say(console, "", "±: standard error of the mean over seeds.")
    if len(rows) > 1:
        what = f"points of {metric.name}" if metric.unit == FRACTION else metric.name
        say(
            console,
            f"over {first}: difference in {what}, between trainings that share their seed (the "
            "backbone's start and the order of examples).",
        )
    for training in trainings:
        if not training.evaluation.is_ok:
            reason = why(training.evaluation)
            say(console, f"{training.name}, seed {training.repeat}: {reason}")


def why(evaluation: Evaluation) -> str:
    """Why a training failed, or the gate that stopped it, without the score."""
    text = last_line(evaluation.error)
    if evaluation.status == "stopped":
        return f"stopped at the {text.partition(':')[0]}"
    return f"{evaluation.reason}: {text}"


def _mean(values: Collection[float], metric: Metric | Objective) -> str:
    if not values:
        return "-"
    mean, error = mean_and_error([*values])
    return amount(mean, metric.unit, error)


def _over(
    scores: Mapping[int, float], base: Mapping[int, float], metric: Metric | Objective
) -> str:
    """The mean difference between trainings of the same repeats."""
    gains = paired(scores, base)
    return points(*mean_and_error(gains), metric.unit) if gains else "-"


def points(mean: float, error: float | None, unit: str) -> str:
    """A difference with its sign and standard error; fractions in percentage points."""
    scale, places = (100, 1) if unit == FRACTION else (1, 3)
    shown = f"{scale * mean:+.{places}f}"
    return shown if error is None else f"{shown} ± {scale * error:.{places}f}"
