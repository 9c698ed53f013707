"""The answer of ``nas explain``: what each part of a mechanism is worth.

Three tables of comparisons between trainings that share their seed: the mechanism with one edit,
the steps that lead to it from standard attention, and standard attention of about its costs. All
verdicts are judged together (nas.common.differences). Nothing is said where a training failed: what
is left is chosen by luck.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from nas.common.differences import LEVEL, mean_and_error
from nas.compiler import formula_of, make_plan
from nas.genome.canonical import digest
from nas.report.table import Column, say, say_table
from nas.report.trials import points, why
from nas.report.units import FRACTION, amount, header

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from nas.explaining import Comparison, Race

# What is said of an edit where its result is better, worse or the same.
OF_EDITS: Final = {"worse": "needed", "better": "harmful", "same": "harmless"}
TITLES: Final = {
    "edits": "Edits of {source}",
    "path": "From mha to {source}, each step beside the one before",
    "controls": "Controls, beside {source}",
}
ROWS: Final = {"edits": "edit", "path": "step", "controls": "control"}


def explanation_answer(
    source: str, task: str, race: Race, costs: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """The JSON answer; its keys are stable.

    Args:
        costs: of each mechanism, by key.
    """
    plan, metric, found = race.plan, race.metric, race.findings()

    def mechanism(key: str) -> dict[str, Any]:
        values, failed = race.values(key), Counter[str]()
        failed.update(why(e) for e in race.evaluations[key].values() if not e.is_ok)
        mean, error = mean_and_error([*values.values()]) if values else (None, None)
        genome = plan.mechanisms[key]
        return {
            "id": digest(genome),
            "formula": formula_of(make_plan(genome)),
            "genome": genome.to_dict(),
            "mean": mean,
            "error": error,
            "values": [values.get(repeat) for repeat in sorted(race.evaluations[key])],
            "failed": dict(failed),
            "costs": dict(costs[key]),
        }

    def row(one: Comparison) -> dict[str, Any]:
        finding = found[one.pair]
        if finding is not None and one.pair != (one.before, one.after):
            finding = finding.reversed()
        verdict: str = "unresolved" if finding is None else finding.verdict
        return {
            "words": one.words,
            **mechanism(one.after),
            "difference": finding and asdict(finding),
            "verdict": OF_EDITS.get(verdict, verdict) if one.part == "edits" else verdict,
            "added_costs": {n: c - costs[one.before][n] for n, c in costs[one.after].items()},
        }

    return {
        "source": source,
        "task": task,
        "metric": {"name": metric.name, "unit": metric.unit, "direction": metric.direction},
        "margin": race.margin,
        "seeds": list(race.looks),
        **mechanism(plan.source),
        **{part: [row(one) for one in plan.comparisons if one.part == part] for part in TITLES},
        "has_path": plan.has_path,
    }


def explanation_table(console: Console, answer: Mapping[str, Any]) -> None:
    """The mechanism, then a table a part: what differs, by how much, the verdict, the costs."""
    metric, source = answer["metric"], answer["source"]
    unit = metric["unit"]
    mean = "-" if answer["mean"] is None else amount(answer["mean"], unit, answer["error"])
    name = header(metric["name"], unit)
    say(console, f"{source}   {answer['formula']}")
    say(console, f"{name} {mean} under {answer['task']}, {len(answer['values'])} seeds")
    for part, title in TITLES.items():
        if answer[part]:
            say(console, "", title.format(source=source))
            say_table(console, _columns(part, answer[part], unit))
    margin = points(answer["margin"], None, unit).lstrip("+")
    what = f"points of {metric['name']}" if unit == FRACTION else metric["name"]
    looks = " and ".join(map(str, answer["seeds"]))
    say(
        console,
        "",
        f"difference: in {what}, of trainings that share their seed, ± its standard error; low, "
        "high: its 95 % interval.",
        f"needed, harmful: worse, better by the edit; harmless, same: less than {margin} either "
        f"way. All verdicts: p below {LEVEL} after Holm's correction over all rows, looked at "
        f"after {looks} seeds.",
    )
    if not answer["has_path"]:
        say(console, "No path of single legal edits from mha was found.")
    for one in ({"words": source, **answer}, *(r for part in TITLES for r in answer[part])):
        for reason, count in one["failed"].items():
            say(console, f"{one['words']}: {count} of {len(one['values'])} failed, {reason}")


def _columns(part: str, rows: Sequence[Mapping[str, Any]], unit: str) -> list[Column]:
    found = [row["difference"] for row in rows]
    over = [points(one["mean"], one["error"], unit) if one else "-" for one in found]
    ends = [_ends(one, unit) for one in found]
    columns = [
        Column(ROWS[part], [row["words"] for row in rows]),
        Column("difference", over, "right"),
        Column("low", [low for low, _ in ends], "right", rank=1),
        Column("high", [high for _, high in ends], "right", rank=1),
        Column("seeds", [str(d["pairs"]) if d else "-" for d in found], "right", rank=2),
        Column("verdict", [row["verdict"] for row in rows]),
    ]
    for cost in rows[0]["added_costs"]:
        added = [signed(row["added_costs"][cost]) for row in rows]
        columns.append(Column(header(cost), added, "right", rank=2))
    return [*columns, Column("formula", [row["formula"] for row in rows], rank=3)]


def _ends(found: Mapping[str, float] | None, unit: str) -> tuple[str, str]:
    if found is None:
        return "-", "-"
    return points(found["low"], None, unit), points(found["high"], None, unit)


def signed(value: float) -> str:
    """A difference of costs."""
    return f"{'+' if value > 0 else '-'}{amount(abs(value))}" if value else "0"
