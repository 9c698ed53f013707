"""The result of ``nas.evaluate``: trainings of mechanisms without a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console

from nas.common.differences import LEVEL, gain_of, mean_and_error, paired, successful
from nas.common.objectives import Metric, Objective
from nas.common.text import last_line
from nas.costs import default_costs
from nas.evaluation.trial import Evaluation
from nas.report.result import TableResult
from nas.report.table import TextColumn, say, say_table
from nas.report.units import FRACTION, amount, gain_cell, header, quantity

ON_TEST: Final = "Judged on the test set."
UNDECIDED: Final = (
    f"?: undecided, which is not equal: p is {LEVEL} or more in a t-test of this difference alone. "
    "A mechanism with a failed training has no difference."
)
MARK: Final = "*"
MEASURED: Final = (
    f"{MARK} measured on a torch module: multiply-adds that torch's FlopCounterMode counted, and "
    "weights; what decoding would cost is not known."
)


@dataclass(frozen=True)
class TrainingRow:
    """One training of one mechanism.

    Attributes:
        name: argument SOURCE of ``nas evaluate``, which names the mechanism.
        digest: digest of the mechanism.
        repeat: index among the trainings of this mechanism, from 0.
        evaluation: result of the training.
        costs: total costs of the attention layers of the model, by name of the cost.
        metric: first metric of the task, by which mechanisms are compared.
        is_measured: whether the costs were measured, because the mechanism is a user's own torch
            module. Costs that cannot be measured are missing.
        learning_rate: the learning rate, if the task's rates are tried; else None.
    """

    name: str
    digest: str
    repeat: int
    evaluation: Evaluation
    costs: Mapping[str, float]
    metric: Metric | Objective
    is_measured: bool = False
    learning_rate: float | None = None

    @property
    def value(self) -> float | None:
        """The value of the metric after the training; None if the training failed."""
        return self.evaluation.metrics[self.metric.name] if self.evaluation.is_ok else None

    def to_dict(self) -> dict[str, Any]:
        """Return the training as an entry of the JSON object of ``nas evaluate``."""
        result = self.evaluation
        return {
            "id": self.digest,
            "source": self.name,
            "repeat": self.repeat,
            "seed": result.seed,
            "status": result.status,
            "reason": result.reason,
            "measured": self.is_measured,
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
        task: argument of the function, which names the task.
        test: whether metrics were measured on the test set instead of on validation examples.
        trainings: trainings sorted by mechanism, in the order of the arguments, then by repeat.
    """

    task: str
    test: bool
    trainings: tuple[TrainingRow, ...]

    @property
    def is_ok(self) -> bool:
        """Whether at least one training succeeded."""
        return any(training.evaluation.is_ok for training in self.trainings)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``nas evaluate --json`` prints."""
        rows = [training.to_dict() for training in self.trainings]
        return {"task": self.task, "test": self.test, "evaluations": rows}

    def records(self) -> list[dict[str, Any]]:
        """Return a dict for each training, with the names of table columns as keys."""
        records = []
        for training in self.trainings:
            entry = training.to_dict()
            objectives = entry.pop("objectives")
            del entry["budget"]
            records.append({**entry, **training.costs, **objectives})
        return records


def trial_line(training: TrainingRow, done: int, total: int) -> str:
    """Return one line on a finished training: mechanism, seed, metric or failure, and time."""
    result, metric, value = training.evaluation, training.metric, training.value
    outcome = f"{result.status} ({result.reason})" if result.reason else why(result)
    if value is not None:
        outcome = f"{metric.name} {quantity(value, metric.unit)}"
    seconds = f"{result.core_seconds:.1f} core s"
    rate = "" if training.learning_rate is None else f" at rate {training.learning_rate:g}"
    return f"[{done}/{total}] {training.name}{rate}, seed {training.repeat}: {outcome}, {seconds}"


def cost_cell(costs: Mapping[str, float], name: str, *, is_measured: bool) -> str:
    """Return a cost as text: with a mark if it was measured, "-" if it is not known."""
    return amount(costs[name]) + MARK * is_measured if name in costs else "-"


def why(evaluation: Evaluation) -> str:
    """Return why a training failed, or which gate (bound on a task's metric) stopped it."""
    text = last_line(evaluation.error)
    if evaluation.status == "stopped":
        return f"stopped at the {text.partition(':')[0]}"
    return f"{evaluation.reason}: {text}"


def trial_table(console: Console, result: EvaluateResult) -> None:
    """Print each mechanism's mean metric with standard error, costs and failures.

    The table also shows the difference to the first mechanism over trainings that share their seed.
    """
    metric, unit = result.trainings[0].metric, result.trainings[0].metric.unit
    groups: dict[str, list[TrainingRow]] = {}
    for training in result.trainings:
        groups.setdefault(training.name, []).append(training)
    first = next(iter(groups))
    results = {name: {t.repeat: t.value for t in group} for name, group in groups.items()}
    titles = [header(metric.name, unit), f"over {first}"]
    titles += [*map(header, default_costs()), "core s", "trained", "failed"]
    rows = []
    for name, group in groups.items():
        scores = [*successful(results[name]).values()]
        gains = paired(results[name], results[first]) if name != first else []
        seconds = [t.evaluation.core_seconds for t in group if t.evaluation.is_ok]
        mean, error = mean_and_error(scores) if scores else (0.0, None)
        rows.append(
            [
                name,
                amount(mean, unit, error) if scores else "-",
                gain_cell(gain_of(gains, metric.direction), unit),
                *(
                    cost_cell(group[0].costs, cost, is_measured=group[0].is_measured)
                    for cost in default_costs()
                ),
                f"{mean_and_error(seconds)[0]:.1f}" if seconds else "-",
                str(len(scores)),
                str(len(group) - len(scores)),
            ]
        )
    names, *numbers = zip(*rows, strict=True)
    columns = [TextColumn(t, c, "right") for t, c in zip(titles, numbers, strict=True)]
    say_table(console, [TextColumn("mechanism", names), *columns])
    if any(training.is_measured for training in result.trainings):
        say(console, "", MEASURED)
    if result.test:
        say(console, "", ON_TEST)
    if any(len(group) > 1 for group in groups.values()):
        say(console, "", "±: standard error of the mean over seeds.")
    if len(groups) > 1:
        what = f"points of {metric.name}" if unit == FRACTION else metric.name
        say(
            console,
            f"over {first}: difference in {what}, between trainings that share their seed (the "
            "backbone's start and the order of examples).",
            UNDECIDED,
        )
    for training in result.trainings:
        if not training.evaluation.is_ok:
            reason = why(training.evaluation)
            say(console, f"{training.name}, seed {training.repeat}: {reason}")
