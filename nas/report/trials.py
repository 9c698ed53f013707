"""The answer of ``nas evaluate``: mechanisms trained without a search, with their spread."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from nas.common.differences import mean_and_error, paired
from nas.evaluation.study import Result
from nas.report.table import Column, say, say_table
from nas.report.text import last_line
from nas.report.units import FRACTION, amount, header, quantity

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rich.console import Console

    from nas.common.objectives import Metric, Objective
    from nas.evaluation.trial import Evaluation

COSTS: Final = ("macs", "params", "kv_cache_bytes_per_token")
ON_TEST: Final = "Judged on the test set."


@dataclass(frozen=True)
class Training(Result):
    """One training of one mechanism, and what it gave; its name is the SOURCE as given.

    Attributes:
        costs: of all attention layers, by name.
        metric: the task's first, by which mechanisms are compared.
    """

    costs: Mapping[str, float]
    metric: Metric | Objective


def trial_answer(task: str, trainings: Sequence[Training], *, test: bool = False) -> dict[str, Any]:
    """The JSON answer: its stable keys, and the source beside the digest."""
    return {"task": task, "test": test, "evaluations": [_entry(training) for training in trainings]}


def trial_line(training: Training, done: int, total: int) -> str:
    """One line for a finished training."""
    result, metric = training.evaluation, training.metric
    told = f"{result.status} ({result.reason})" if result.reason else why(result)
    if result.is_ok:
        told = f"{metric.name} {quantity(result.metrics[metric.name], metric.unit)}"
    seconds = f"{result.core_seconds:.1f} core s"
    return f"[{done}/{total}] {training.name}, seed {training.repeat}: {told}, {seconds}"


def trial_table(console: Console, trainings: Sequence[Training], *, test: bool = False) -> None:
    """A row a mechanism: means, standard errors, costs, and failures where there are any.

    Differences are those of trainings that share their seed, to the mechanism named first.
    """
    metric, ok = trainings[0].metric, [t for t in trainings if t.evaluation.is_ok]
    of = {t.name: [own for own in trainings if own.name == t.name] for t in trainings}
    values = {
        name: {t.repeat: t.evaluation.metrics[metric.name] for t in ok if t.name == name}
        for name in of
    }
    seconds = [[t.evaluation.core_seconds for t in ok if t.name == name] for name in of]
    first = next(iter(of))
    cells = {
        header(metric.name, metric.unit): [_mean(own.values(), metric) for own in values.values()],
        f"over {first}": [
            "-" if name == first else _over(own, values[first], metric)
            for name, own in values.items()
        ],
        **{header(c): [amount(own[0].costs[c]) for own in of.values()] for c in COSTS},
        "core s": [f"{mean_and_error(own)[0]:.1f}" if own else "-" for own in seconds],
        "trained": [str(len(own)) for own in values.values()],
        "failed": [str(len(own) - len(values[name])) for name, own in of.items()],
    }
    numbers = [Column(title, column, "right") for title, column in cells.items()]
    say_table(console, [Column("mechanism", [*of]), *numbers])
    if test:
        say(console, "", ON_TEST)
    if any(len(own) > 1 for own in of.values()):
        say(console, "", "±: standard error of the mean over seeds.")
    if len(of) > 1:
        what = f"points of {metric.name}" if metric.unit == FRACTION else metric.name
        say(
            console,
            f"over {first}: difference in {what}, between trainings that share their seed (the "
            "backbone's start and the order of examples).",
        )
    for training in trainings:
        found = training.evaluation
        if not found.is_ok:
            say(console, f"{training.name}, seed {training.repeat}: {why(found)}")


def why(evaluation: Evaluation) -> str:
    """Why a training did not end well; at a gate, which one, whatever the score."""
    text = last_line(evaluation.error)
    if evaluation.status == "stopped":
        return f"stopped at the {text.partition(':')[0]}"
    return f"{evaluation.reason}: {text}"


def _entry(training: Training) -> dict[str, Any]:
    result = training.evaluation
    return {
        "id": training.digest,
        "source": training.name,
        "repeat": training.repeat,
        "seed": result.seed,
        "status": result.status,
        "reason": result.reason,
        "objectives": {**result.to_dict()["metrics"], **training.costs} if result.is_ok else {},
        "core_seconds": result.core_seconds,
        "wall_seconds": result.wall_seconds,
        "peak_memory_bytes": result.peak_memory_bytes,
        "budget": asdict(result.budget),
        "hardware": result.hardware,
        "error": result.error,
    }


def _mean(values: Collection[float], metric: Metric | Objective) -> str:
    if not values:
        return "-"
    mean, error = mean_and_error([*values])
    return amount(mean, metric.unit, error)


def _over(own: Mapping[int, float], base: Mapping[int, float], metric: Metric | Objective) -> str:
    """The mean difference between trainings of the same repeats."""
    gains = paired(own, base)
    return points(*mean_and_error(gains), metric.unit) if gains else "-"


def points(mean: float, error: float | None, unit: str) -> str:
    """A difference with its sign and standard error; of fractions in points of a hundred."""
    scale, places = (100, 1) if unit == FRACTION else (1, 3)
    shown = f"{scale * mean:+.{places}f}"
    return shown if error is None else f"{shown} ± {scale * error:.{places}f}"
