"""The answer of ``nas benchmark``: mechanisms under several tasks, each beside one of them.

A difference is the mean over pairs of trainings that share their seed, with the interval of
Student's t that holds in 95 of 100 cases. Many differences are judged at once, so a verdict is only
given where Holm's correction over all of them leaves p below .05 (Holm 1979, "A simple sequentially
rejective multiple test procedure"). Nothing is said of a mechanism whose trainings failed in part:
what is left of them is chosen by luck.
"""

from __future__ import annotations

from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from nas.common.differences import LEVEL, difference, holm, mean_and_error, paired
from nas.report.ranks import rank_correlations
from nas.report.table import Column, say, say_table
from nas.report.trials import ON_TEST, why
from nas.report.units import amount, header

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from nas.common.objectives import Metric, Objective
    from nas.report.trials import Training

MARKS: Final = {"better": "+", "worse": "-", "undecided": "=", None: " "}
SENSE: Final = {"max": "higher is better", "min": "lower is better"}


def benchmark_answer(
    sources: Sequence[str],
    trainings: Mapping[str, Sequence[Training]],
    absent: Mapping[str, Mapping[str, str]],
    seeds: int,
    *,
    test: bool = False,
) -> dict[str, Any]:
    """The JSON answer; its keys are stable.

    Args:
        sources: the first is what all others are compared with.
        trainings: by task.
        absent: by task, which cannot be trained under it, and why.
        test: judged on the test sets.
    """
    cells = {
        task: {source: _cell(source, own) for source in sources if source not in absent[task]}
        for task, own in trainings.items()
    }
    for of in cells.values():
        base = of.get(sources[0])
        for source, cell in of.items():
            cell["difference"] = None
            if base is not None and source != sources[0] and not cell["failed"] + base["failed"]:
                cell["difference"] = difference(paired(cell["values"], base["values"]))
    compared = [c["difference"] for of in cells.values() for c in of.values() if c["difference"]]
    for judged, p in zip(compared, holm([d["p"] for d in compared]), strict=True):
        judged["p_holm"] = p
    metrics = {task: own[0].metric for task, own in trainings.items() if own}
    for task, of in cells.items():
        for cell in of.values():
            cell["verdict"] = _verdict(cell["difference"], metrics[task].direction)
            cell["values"] = [cell["values"].get(repeat) for repeat in range(seeds)]
    return {
        "against": sources[0],
        "seeds": seeds,
        "test": test,
        "tasks": {
            task: {"metric": m.name, "unit": m.unit, "direction": m.direction}
            for task, m in metrics.items()
        },
        "rank_correlations": [*rank_correlations(_ranked(cells, metrics))],
        "mechanisms": [
            {
                "source": source,
                "tasks": {task: of[source] for task, of in cells.items() if source in of},
                "absent": {task: of[source] for task, of in absent.items() if source in of},
            }
            for source in sources
        ],
    }


def benchmark_table(console: Console, answer: Mapping[str, Any]) -> None:
    """A row a mechanism, a column a task: mean, error, and a verdict beside the first row."""
    rows = answer["mechanisms"]
    columns = [Column("mechanism", [row["source"] for row in rows])]
    for task, metric in answer["tasks"].items():
        shown = [_shown(row["tasks"].get(task), metric["unit"]) for row in rows]
        columns.append(Column(task, shown, "right"))
    say_table(console, columns)
    tasks, seeds = answer["tasks"].items(), answer["seeds"]
    units = [
        f"{task}: {header(m['metric'], m['unit'])}, {SENSE[m['direction']]}" for task, m in tasks
    ]
    say(console, "", "; ".join(units) + ".")
    if answer["test"]:
        say(console, ON_TEST)
    if seeds > 1:
        say(
            console,
            f"±: standard error of the mean over {seeds} seeds.",
            f"+ better than {answer['against']}, - worse, = undecided: pairs of trainings that "
            f"share their seed, p below {LEVEL} after Holm's correction over the whole table.",
        )
    for one in answer["rank_correlations"]:
        first, second = one["tasks"]
        say(
            console,
            f"{first} and {second}: Spearman's rank correlation {one['rho']:.2f} "
            f"[{one['low']:.2f}, {one['high']:.2f}] over {one['mechanisms']} mechanisms.",
        )
    for row in rows:
        for task, reason in row["absent"].items():
            say(console, f"{row['source']} under {task}: {reason}")
        for task, cell in row["tasks"].items():
            for reason, count in cell["reasons"].items():
                say(console, f"{row['source']} under {task}: {count} of {seeds} failed, {reason}")


def _ranked(
    cells: Mapping[str, Mapping[str, Mapping[str, Any]]], metrics: Mapping[str, Metric | Objective]
) -> dict[str, dict[str, float]]:
    """The means of what never failed, by task and mechanism; more is better."""
    signs = {task: 1 if metric.direction == "max" else -1 for task, metric in metrics.items()}
    return {
        task: {name: signs[task] * one["mean"] for name, one in of.items() if not one["failed"]}
        for task, of in cells.items()
        if task in signs
    }


def _cell(source: str, trainings: Sequence[Training]) -> dict[str, Any]:
    own = [one for one in trainings if one.name == source]
    good = [one for one in own if one.evaluation.is_ok]
    reasons = Counter(why(one.evaluation) for one in own if not one.evaluation.is_ok)
    values = {one.repeat: one.evaluation.metrics[one.metric.name] for one in good}
    mean, error = mean_and_error([*values.values()]) if good else (None, None)
    return {
        "mean": mean,
        "error": error,
        "values": dict(sorted(values.items())),
        "failed": len(own) - len(good),
        "reasons": dict(reasons),
        "core_seconds": fmean(one.evaluation.core_seconds for one in good) if good else None,
        "costs": dict(own[0].costs) if own else {},
    }


def _verdict(difference: Mapping[str, float] | None, direction: str) -> str | None:
    if difference is None:
        return None
    if difference["p_holm"] >= LEVEL:
        return "undecided"
    return "better" if (difference["mean"] > 0) == (direction == "max") else "worse"


def _shown(cell: Mapping[str, Any] | None, unit: str) -> str:
    if cell is None or cell["mean"] is None:
        return ""
    return f"{amount(cell['mean'], unit, cell['error'])} {MARKS[cell['verdict']]}"
