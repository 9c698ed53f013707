"""The answer of ``nas evaluate``: mechanisms trained without a search, with their spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nas.evaluation.study import mean_and_error
from nas.report.table import Column, say, say_table
from nas.report.units import HEADERS, measured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from nas.evaluation.study import Trial


def trial_answer(task: str, trials: Sequence[Trial]) -> dict[str, Any]:
    """The JSON answer; keys as DESIGN gives them, and the source beside the digest."""
    return {"task": task, "evaluations": [_entry(trial) for trial in trials]}


def trial_line(trial: Trial, done: int, total: int) -> str:
    """One line for a finished training."""
    result = trial.evaluation
    outcome = (
        f"accuracy {100 * result.objectives['accuracy']:.2f} %"
        if result.is_ok
        else f"failed ({result.reason})"
    )
    return f"[{done}/{total}] {trial.name}, seed {trial.repeat}: {outcome}, {_seconds(result)}"


def trial_table(console: Console, trials: Sequence[Trial]) -> None:
    """A row a mechanism: means, standard errors, costs, and failures where there are any.

    Differences are those of trainings that share their seed, to the mechanism named first.
    """
    names = _names(trials)
    of = {name: [t for t in trials if t.name == name] for name in names}
    rows = [_row(name, of[name], of[names[0]]) for name in names]
    headers = (
        "mechanism",
        HEADERS["accuracy"],
        f"over {names[0]}",
        HEADERS["macs"],
        HEADERS["params"],
        HEADERS["kv_cache_bytes_per_token"],
        "core s",
        "trained",
        "failed",
    )
    columns = [
        Column(header, tuple(cells), "left" if number == 0 else "right")
        for number, (header, cells) in enumerate(zip(headers, zip(*rows, strict=True), strict=True))
    ]
    say_table(console, columns)
    if any(len(of[name]) > 1 for name in names):
        say(console, "", "±: standard error of the mean over seeds.")
    if len(names) > 1:
        say(
            console,
            f"over {names[0]}: points of accuracy, between trainings that share their seed (the "
            "backbone's start and the order of images).",
        )
    for trial in trials:
        if not trial.evaluation.is_ok:
            reason = (trial.evaluation.error or "").strip().splitlines()
            say(
                console,
                f"{trial.name}, seed {trial.repeat}: {trial.evaluation.reason}: "
                f"{reason[-1] if reason else ''}",
            )


def _entry(trial: Trial) -> dict[str, Any]:
    result = trial.evaluation
    return {
        "id": trial.digest,
        "source": trial.name,
        "repeat": trial.repeat,
        "seed": result.seed,
        "status": result.status,
        "reason": result.reason,
        "objectives": dict(result.objectives),
        "core_seconds": result.core_seconds,
        "wall_seconds": result.wall_seconds,
        "peak_memory_bytes": result.peak_memory_bytes,
        "budget": result.budget,
        "error": result.error,
    }


def _names(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys(trial.name for trial in trials))


def _row(name: str, trials: Sequence[Trial], base: Sequence[Trial]) -> list[str]:
    good = [t.evaluation for t in trials if t.evaluation.is_ok]
    cells = [name]
    for objective in ("accuracy", "over", "macs", "params", "kv_cache_bytes_per_token"):
        if objective == "over":
            cells.append(_over(trials, base))
            continue
        values = [e.objectives[objective] for e in good]
        if values:
            mean, error = mean_and_error(values)
            cells.append(measured(objective, mean, error if objective == "accuracy" else None))
        else:
            cells.append("-")
    seconds = [e.core_seconds for e in good]
    cells.append(f"{mean_and_error(seconds)[0]:.1f}" if seconds else "-")
    return [*cells, str(len(good)), str(len(trials) - len(good))]


def _over(trials: Sequence[Trial], base: Sequence[Trial]) -> str:
    """The mean difference in points from the base's trainings of the same repeats."""
    known = {t.repeat: t.evaluation for t in base if t.evaluation.is_ok}
    gains = [
        100 * (t.evaluation.objectives["accuracy"] - known[t.repeat].objectives["accuracy"])
        for t in trials
        if t.evaluation.is_ok and t.repeat in known
    ]
    if not gains or list(trials) == list(base):
        return "-"
    mean, error = mean_and_error(gains)
    return f"{mean:+.1f}" + (f" ± {error:.1f}" if error is not None else "")


def _seconds(result: Any) -> str:
    return f"{result.core_seconds:.1f} core s"
