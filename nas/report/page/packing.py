"""A run's content as a header and columns: what scripts/data.js reads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nas.report.units import FRACTION, header

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nas.report.page.columns import Columns
    from nas.report.run_view import RunView
    from nas.store import Confirmation


def pack_run(content: RunView, code: Mapping[str, str], columns: Columns) -> dict[str, Any]:
    """What the header says of one run.

    Args:
        code: exported sources, by digest.
    """
    setup, trained = content.setup, content.trained
    standard = trained.get(content.standard_key or "")
    return {
        "name": content.name,
        "label": content.label,
        "seed": setup.seed,
        "population": setup.population,
        "idLength": content.id_length,
        "objectives": [_objective(o) for o in setup.objectives],
        "standard": standard.digest if standard else None,
        "titles": dict(content.titles),
        "names": {trained[k].digest: n for k, n in content.names.items() if k in trained},
        "front": [member.digest for member in content.members],
        "code": dict(code),
        "mechanisms": _mechanisms(content, columns),
        "trainings": _trainings(content, columns),
        "confirmations": [
            _confirmation(content, title, one)
            for title, own in content.fresh.items()
            for of_one in own.values()
            for one in of_one
            if one.key in trained
        ],
        "size": len(content.mechanisms),
    }


def _objective(objective: Any) -> dict[str, Any]:
    return {
        "name": objective.name,
        "title": header(objective.name, objective.unit),
        "about": objective.about,
        "unit": objective.unit,
        "direction": objective.direction,
        "isMetric": objective.is_metric,
    }


def _mechanisms(content: RunView, columns: Columns) -> dict[str, Any]:
    """A row a mechanism."""
    found = content.mechanisms
    place = {one.digest: i for i, one in enumerate(found)}
    estimated = [one if one.p is not None else None for one in found]
    metrics = [o.name for o in content.setup.objectives if o.is_metric]
    costs = sorted({name for one in found for name in one.costs})
    return {
        "digest": columns.texts(one.digest for one in found),
        "formula": columns.pieces(one.proposal.formula for one in found),
        "genome": columns.pieces(one.proposal.genome.to_json() for one in found),
        "note": columns.words([one.proposal.note for one in found]),
        "operator": columns.words([one.proposal.operator for one in found]),
        "state": columns.words([one.state for one in found]),
        "number": columns.numbers((one.proposal.number for one in found), "i4"),
        "parents": columns.lists(
            [[place[name] for name in one.proposal.parents if name in place] for one in found], "i4"
        ),
        "p": columns.numbers((one.p for one in found), "f4"),
        "estimates": {
            name: columns.numbers(one.objectives.get(name) if one else None for one in estimated)
            for name in metrics
        },
        "errors": {
            name: columns.numbers(
                (one.errors.get(name) if one else None for one in estimated), "f4"
            )
            for name in metrics
        },
        "costs": {name: columns.numbers(one.costs.get(name) for one in found) for name in costs},
    }


def _trainings(content: RunView, columns: Columns) -> dict[str, Any]:
    """A row a training, and their reports of all epochs in a row."""
    rows = content.trainings
    ended = [row.evaluation for row in rows]
    place = {one.key: i for i, one in enumerate(content.mechanisms) if one.key in content.trained}
    reports = [report for one in ended for report in one.reports]
    curves = curves_of(content)
    zero = content.started.timestamp()
    return {
        "mechanism": columns.numbers((place[row.key] for row in rows), "i4"),
        "repeat": columns.numbers((row.repeat for row in rows), "i4"),
        "seed": columns.numbers((one.seed for one in ended), "i4"),
        **{
            name: columns.words([getattr(one, name) or "" for one in ended])
            for name in ("status", "reason", "worker", "hardware", "execution", "error")
        },
        "wall": columns.numbers((one.wall_seconds for one in ended), "f4"),
        "core": columns.numbers((one.core_seconds for one in ended), "f4"),
        "memory": columns.numbers((one.peak_memory_bytes for one in ended), "f4"),
        "ended": columns.numbers((row.recorded.timestamp() - zero for row in rows), "f4"),
        "metrics": {
            name: columns.numbers((one.metrics.get(name) for one in ended), "f8")
            for name in _names(one.metrics for one in ended)
        },
        "epochs": columns.numbers((len(one.reports) for one in ended), "i4"),
        "losses": columns.numbers((_number(r.train_loss) for r in reports), "f2"),
        "curves": {
            name: columns.numbers((_number(r.metrics.get(name)) for r in reports), "f2") | about
            for name, about in curves.items()
        },
    }


def curves_of(content: RunView) -> dict[str, dict[str, str]]:
    """Metrics that a learning curve is drawn of, with title and unit.

    The run's own metric; of a suite, whose members report one after the other, each member's
    first one.
    """
    metric = content.metric
    names = dict.fromkeys(
        n for t in content.trainings for report in t.evaluation.reports for n in report.metrics
    )
    if metric is None or metric.name in names:
        shown = [metric.name] if metric else []
    else:
        shown = [*{name.partition(".")[0]: name for name in reversed(names)}.values()][::-1]
    # A record says the units of objectives alone; accuracy is a fraction in every task.
    units = {n: FRACTION if n.rpartition(".")[2] == "accuracy" else "" for n in shown}
    units |= {metric.name: metric.unit} if metric else {}
    titles = {name: header(name.replace(".", ", "), units[name]) for name in shown}
    return {name: {"title": titles[name], "unit": units[name]} for name in shown}


def _confirmation(content: RunView, title: str, one: Confirmation) -> dict[str, Any]:
    found = one.evaluation
    return {
        "title": title,
        "task": one.task_name,
        "digest": content.trained[one.key].digest,
        "repeat": one.repeat,
        "seed": found.seed,
        "metrics": dict(found.metrics),
        "core": found.core_seconds,
        "curves": {
            name: [_number(report.metrics.get(name)) for report in found.reports]
            for name in curves_of(content)
        },
    }


def _names(found: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({name for values in found for name in values})


def _number(value: float | None) -> float | None:
    """None where it is not finite."""
    return value if value is not None and math.isfinite(value) else None
