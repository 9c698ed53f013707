"""The answer of ``nas confirm``: what the search scored, what it believes, what fresh seeds say."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from nas.common.differences import difference, paired
from nas.report.benchmark import SENSE
from nas.report.facts import FRESH, ID_LENGTH, spread
from nas.report.table import Column, say, say_table
from nas.report.trials import points, why
from nas.report.units import FRACTION, amount, header
from nas.searching.confirm import STANDARD
from nas.tasks.suite import Suite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from nas.common.objectives import Metric
    from nas.searching.confirm import Plan, Stage, Subject
    from nas.store import Run


def confirmation_answer(run: Run, plan: Plan) -> dict[str, Any]:
    """The JSON answer, from what the record holds of a plan; the keys are stable."""
    metric = plan.metric
    # By part, then by key: metrics of trainings that ended well, by repeat.
    found: dict[str, dict[str, dict[int, Mapping[str, float]]]] = {s.part: {} for s in plan.stages}
    failed: dict[str, Counter[str]] = defaultdict(Counter)  # reasons, by key
    planned = {(stage.part, stage.document.fingerprint) for stage in plan.stages}
    for one in run.confirmations():
        if (one.part, one.task) not in planned or one.repeat >= plan.seeds:
            continue
        if one.evaluation.is_ok:
            own = found[one.part].setdefault(one.key, {})
            own[one.repeat] = one.evaluation.metrics
        else:
            failed[one.key][f"{FRESH[one.part]}: {why(one.evaluation)}"] += 1
    standard = next(subject.key for subject in plan.subjects if subject.name == STANDARD)

    judged = {FRESH[stage.part]: _judged(stage) for stage in plan.stages}

    def scores(part: str, key: str, name: str) -> dict[int, float]:
        return {repeat: metrics[name] for repeat, metrics in found[part].get(key, {}).items()}

    def over(part: str, key: str, name: str) -> list[float]:
        return paired(scores(part, key, name), scores(part, standard, name))

    def entry(subject: Subject) -> dict[str, Any]:
        known, key = subject.candidate, subject.key
        own = {part: scores(part, key, metric.name) for part in found}
        gains = {part: over(part, key, metric.name) for part in found}
        is_standard = key == standard
        return {
            "id": subject.digest,
            "name": subject.name,
            "score": known.scores[metric.name] if known else None,
            "estimate": known.objectives[metric.name] if known else None,
            "error": known.errors.get(metric.name) if known else None,
            "p": known.p if known else None,
            **{key: spread([*own[p].values()]) if p in own else None for p, key in FRESH.items()},
            "over_mha": None
            if is_standard
            else {key: spread(gains[p]) if p in gains else None for p, key in FRESH.items()},
            "over_mha_in": None
            if is_standard
            else {
                shown: {one.name: difference(over(part, key, one.name)) for one in judged[shown]}
                for part, shown in FRESH.items()
                if judged.get(shown)
            },
            "failed": dict(failed[subject.key]),
            "costs": dict(subject.costs),
        }

    return {
        "run": run.name,
        "seeds": plan.seeds,
        "metric": {"name": metric.name, "direction": metric.direction, "unit": metric.unit},
        "tasks": {FRESH[stage.part]: stage.task.name for stage in plan.stages},
        "judged": {
            part: {m.name: {"unit": m.unit, "direction": m.direction} for m in own}
            for part, own in judged.items()
            if own
        },
        "members": [entry(subject) for subject in plan.subjects],
    }


def _judged(stage: Stage) -> tuple[Metric, ...]:
    """What each task of a suite is judged by; nothing where one task is the whole."""
    if not isinstance(stage.task, Suite):
        return ()
    names = {f"{name}.{one.metric}" for name, one in stage.task.references.items()}
    return tuple(metric for metric in stage.task.metrics(stage.data) if metric.name in names)


def confirmation_table(console: Console, answer: Mapping[str, Any]) -> None:
    """A row a mechanism; differences to standard attention are between equal seeds."""
    unit, members, tasks = answer["metric"]["unit"], answer["members"], answer["tasks"]
    name = header(answer["metric"]["name"], unit)
    columns = [
        Column("mechanism", [one["name"] or one["id"][:ID_LENGTH] for one in members]),
        Column("score", [_value(one["score"], None, unit) for one in members], "right"),
        Column("estimate", [_value(o["estimate"], o["error"], unit) for o in members], "right"),
    ]
    for key in tasks:
        cells = [_counted(one[key], unit) for one in members]
        over = [_difference(one["over_mha"], key, unit) for one in members]
        columns.append(Column(key, cells, "right"))
        columns.append(Column(f"over {STANDARD}", over, "right", rank=1))
    for cost in members[0]["costs"]:
        shown = [amount(one["costs"][cost]) for one in members]
        columns.append(Column(header(cost), shown, "right", rank=2))
    under = ", ".join(f"{key}: task {task}" for key, task in tasks.items())
    say(console, f"{name} in run {answer['run']}; {under}", "")
    say_table(console, columns)
    what = "points" if unit == FRACTION else answer["metric"]["name"]
    say(
        console,
        "",
        "score: mean of the search's own trainings; estimate: what the search believes.",
        "±: standard error, of a mean over so many (in brackets) fresh seeds.",
        f"over {STANDARD}: difference in {what}, between trainings that share their seed.",
    )
    for key, judged in answer["judged"].items():
        _each_task(console, members, key, judged)
    for one in members:
        for reason, count in one["failed"].items():
            name = one["name"] or one["id"][:ID_LENGTH]
            say(console, f"{name}, {count} of {answer['seeds']} trainings, {reason}")
    if "test" in tasks:
        say(console, "test: judged on the data's test set, which no search sees.")


def _each_task(
    console: Console,
    members: Sequence[Mapping[str, Any]],
    key: str,
    judged: Mapping[str, Mapping[str, str]],
) -> None:
    """A column a task of a suite: differences to standard attention, with their intervals."""
    shown = [one for one in members if one["over_mha_in"] is not None]
    columns = [Column("mechanism", [one["name"] or one["id"][:ID_LENGTH] for one in shown])]
    for name, metric in judged.items():
        cells = [_interval(one["over_mha_in"][key][name], metric["unit"]) for one in shown]
        columns.append(Column(f"{name} over {STANDARD}", cells, "right"))
    say(console, "", f"{key}, each task, with the interval that holds in 95 of 100 cases", "")
    say_table(console, columns)
    told = [
        f"{name}: {'points, ' if m['unit'] == FRACTION else ''}{SENSE[m['direction']]}"
        for name, m in judged.items()
    ]
    say(console, "", "; ".join(told) + ".")


def _interval(found: Mapping[str, float] | None, unit: str) -> str:
    if found is None:
        return "-"
    mean, low, high = (points(found[name], None, unit) for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def _value(mean: float | None, error: float | None, unit: str) -> str:
    return "-" if mean is None else amount(mean, unit, error)


def _counted(found: Mapping[str, Any], unit: str) -> str:
    return f"{_value(found['mean'], found['error'], unit)} ({len(found['values'])})"


def _difference(over: Mapping[str, Any] | None, key: str, unit: str) -> str:
    if over is None or over[key]["mean"] is None:
        return "-"
    return points(over[key]["mean"], over[key]["error"], unit)
