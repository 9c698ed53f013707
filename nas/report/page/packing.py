"""The data of a page: JSON in gzip, which scripts/run.js reads.

Python prepares everything that the scripts show: numbers as text, columns of the table, quantities
of the axes, means over fresh seeds, and exported source code.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Container, Iterable, Sequence
from functools import cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

from nas.common.config import parse_yaml
from nas.common.errors import NasError
from nas.common.objectives import Objective, of_metric
from nas.common.text import last_line
from nas.evaluation.trial import Training
from nas.report.columns import Column
from nas.report.front_chart import FrontAxes
from nas.report.front_columns import front_columns
from nas.report.page.rendering import gain
from nas.report.run_view import RunView
from nas.report.units import amount, duration, header, human
from nas.store import Candidate

if TYPE_CHECKING:
    Table = list[Column[Candidate]]
    Packed = dict[str, list[Any]]

# Columns of `nas front` that scripts compute, or that are slow for many mechanisms.
LEFT_OUT: Final = ("id", "name", "formula")
# Each source takes milliseconds. Without a source the page shows the export command.
MOST_SOURCES: Final = 24
LEVEL: Final = 6  # of compression
# Significant digits of numbers that are not needed exactly, and of numbers in curves.
SHORT: Final = 7
CURVE: Final = 3


def page_columns(view: RunView) -> Table:
    """Return the columns of the page's table of all mechanisms.

    They are columns of the table of ``nas front``, then generation, operator, state and formula.
    """
    size = view.setup.config.population
    return [
        *(c for c in front_columns(view) if c.title and c.key not in LEFT_OUT),
        Column("generation", "gen", lambda m: 1 + m.proposal.number // size),
        Column("operator", "made by", lambda m: m.proposal.operator, is_number=False),
        Column("state", "state", lambda m: m.status, is_number=False),
        Column("formula", "formula", lambda m: m.proposal.formula, is_number=False),
    ]


def shared_columns(tables: Sequence[Table]) -> Table:
    """Return the columns of several tables without duplicates, those of the first table first."""
    columns: dict[str, Column[Candidate]] = {}
    for column in chain.from_iterable(tables):
        columns.setdefault(column.key, column)
    return [*columns.values()]


def pack_page(views: Sequence[RunView], tables: Sequence[Table]) -> str:
    """Return the data for the scripts of a page about runs: JSON in gzip, as base64.

    Args:
        views: the runs.
        tables: ``page_columns`` of each run.
    """
    from nas.genome.primitives import get, names  # imports torch

    _text.cache_clear()
    runs = [_run(view, table) for view, table in zip(views, tables, strict=True)]
    columns = [
        {"key": column.key, "title": column.title, "isNumber": column.is_number}
        for column in shared_columns(tables)
        if any(column.key in run["columns"] for run in runs)
    ]
    axes = FrontAxes.of(views[0].setup.objectives)
    shown = next((view for view in views if view.members), views[0])
    title = header(axes.up.name, axes.up.unit)
    sort = next((column["key"] for column in columns if column["title"] == title), "id")
    defaults = {
        "run": shown.name,
        "id": shown.members[0].digest if shown.members else "",
        "x": axes.across.name,
        "y": axes.up.name,
        "sort": f"{sort}:{'up' if axes.up.direction == 'min' else 'down'}",
    }
    # The role of a primitive gives its colour in a graph.
    roles = {name: str(get(name).signatures[0].role) for name in names()}
    data = {"runs": runs, "roles": roles, "columns": columns, "defaults": defaults}
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), LEVEL, mtime=0)).decode()


def _run(view: RunView, table: Table) -> dict[str, Any]:
    standard, trained, curves = view.standard, view.trained, _curves(view)
    packed = {column.key: _column(column, view) for column in table}
    quantities, columns = _quantities(view, packed)
    return {
        "name": view.name,
        "label": view.label,
        "idLength": view.id_length,
        "quantities": quantities,
        "standard": standard.digest if standard else None,
        "titles": dict(view.titles),
        "names": {trained[k].digest: names for k, names in view.names.items() if k in trained},
        "front": [member.digest for member in view.members],
        "code": _sources(view),
        "columns": columns | {key: column for key, column in packed.items() if column},
        "mechanisms": _mechanisms(view),
        "trainings": _trainings(view, [*curves]),
        "curves": curves,
        "fresh": _fresh(view),
        "confirmations": [
            _confirmation(view, title, training, [*curves])
            for title, training in view.confirmations_by_part
            if training.key in trained
        ],
        "size": len(view.mechanisms),
    }


def _column(column: Column[Candidate], view: RunView) -> Packed | None:
    """Return the values and texts of a column; None if the column has no value.

    Scripts display the texts, and use the values for sorting and CSV.
    """
    rows = view.mechanisms
    values: list[Any] = [column.value(row) for row in rows]
    if not any(value is not None and value != "" for value in values):
        return None
    if not column.is_number:
        return {"texts": [str(value or "") for value in values]}
    errors = [column.error(row) for row in rows] if column.error else None
    if column.text:
        return _numbers(values, errors, [column.text(row) for row in rows], SHORT)
    return _numbers(values, errors, column.unit)


def _numbers(
    values: Sequence[float | None],
    errors: Sequence[float | None] | None,
    texts: Sequence[str] | str,
    digits: int | None = None,
) -> Packed:
    """Return numbers with their standard errors and displayed texts.

    Args:
        texts: displayed text of each number; or the unit in which the numbers are formatted.
        digits: see ``_rounded``.
    """
    if isinstance(texts, str):
        texts = [
            _text(value, texts, error)
            for value, error in zip(values, errors or repeat(None, len(values)), strict=True)
        ]
    packed: Packed = {"values": _rounded(values, digits), "texts": [*texts]}
    return packed | ({"errors": _rounded(errors, SHORT)} if errors else {})


def _rounded(values: Iterable[float | None], digits: int | None = None) -> list[float | None]:
    """Return numbers with this many significant digits; by default all digits.

    A number that is not finite becomes None.
    """
    finite = [v if v is not None and math.isfinite(v) else None for v in values]
    return finite if digits is None else [v and float(f"{v:.{digits}g}") for v in finite]


@cache
def _text(value: float | None, unit: str, error: float | None) -> str:
    return "" if value is None else amount(value, unit, error).replace("-", "−")


def _quantities(
    view: RunView, table: Container[str]
) -> tuple[list[dict[str, Any]], dict[str, Packed]]:
    """Return the quantities that an axis of the figure of the front can show, objectives first.

    Args:
        table: keys of the columns of the page's table. Costs among them are not returned again.

    Returns:
        The quantities, and the columns of their values by key.
    """
    objectives, rows = view.setup.objectives, view.mechanisms
    names = {objective.name for objective in objectives}
    costs = sorted({name for row in rows for name in row.costs} - names)
    metrics = sorted({name for row in rows for name in row.scores} - names)
    others = [Objective(name, "min", "", "", 0.0, 0.0, is_metric=False) for name in costs]
    measured = {metric.name: of_metric(metric) for metric in view.setup.metrics}
    others += [
        measured.get(name) or Objective(name, "max", "", "", 0.0, 0.0, is_metric=True)
        for name in metrics
    ]
    quantities: list[dict[str, Any]] = []
    columns: dict[str, Packed] = {}
    for o in (*objectives, *others):
        is_objective = o.name in names
        estimate = score = o.name if o.name in table and not o.is_metric else f"score {o.name}"
        if o.is_metric:
            scores, digits = (
                [row.scores.get(o.name) for row in rows],
                None if is_objective else SHORT,
            )
            columns[score] = _numbers(scores, None, o.unit, digits)
        elif score not in table:
            values = [row.costs.get(o.name) for row in rows]
            columns[score] = _numbers(values, None, o.unit)
        if o.is_metric and is_objective:
            estimate = f"estimate {o.name}"
            values = [row.objectives.get(o.name) for row in rows]
            errors = [row.errors.get(o.name) for row in rows]
            columns[estimate] = _numbers(values, errors, o.unit)
        quantities.append(
            {
                "name": o.name,
                "title": header(o.name, o.unit),
                "about": o.about,
                "unit": o.unit,
                "direction": o.direction,
                "isMetric": o.is_metric,
                "isObjective": is_objective,
                "limit": o.limit,
                "estimate": estimate,
                "score": score,
            }
        )
    return quantities, columns


def _sources(view: RunView) -> dict[str, str]:
    """Return exported source code of mechanisms by digest, at the sizes of the run's task.

    At most ``MOST_SOURCES`` mechanisms are exported: the best, knee and cheapest mechanisms of the
    front first, then published and confirmed mechanisms, then the rest of the front. If an export
    fails, its error message replaces the source.
    """
    from nas.compiler import make_plan, plain_source  # imports torch
    from nas.tasks import parse_task

    task = view.setup.front_task
    try:
        model = parse_task(parse_yaml(task.text, task.name), task.name).main
    except NasError as error:
        return {member.digest: str(error) for member in view.members}
    keys = sorted({*(t.key for t in view.confirmations), *view.names} & view.trained.keys())
    chosen = [*view.titles, *(view.trained[k].digest for k in keys)]
    chosen += [member.digest for member in view.members]
    sources: dict[str, str] = {}
    for digest in [*dict.fromkeys(chosen)][:MOST_SOURCES]:
        try:
            genome = make_plan(view.by_digest[digest].proposal.genome).genome
            sources[digest] = plain_source(
                genome, model.sizes.dim, model.sizes.heads, qkv_bias=model.qkv_bias
            )
        except NasError as error:
            sources[digest] = str(error)
    return sources


def _mechanisms(view: RunView) -> dict[str, list[Any]]:
    rows = view.mechanisms
    place = {row.digest: i for i, row in enumerate(rows)}
    return {
        "digest": [row.digest for row in rows],
        "genome": [row.proposal.genome.to_json() for row in rows],
        "note": [row.proposal.note for row in rows],
        "parents": [[place[p] for p in row.proposal.parents if p in place] for row in rows],
    }


def _trainings(view: RunView, curves: Sequence[str]) -> dict[str, Any]:
    """Return the trainings of the search as columns.

    Most columns have a value for each training. Columns of learning curves have a value for each
    epoch, the epochs of all trainings one after another.

    Args:
        curves: names of the metrics with learning curves.
    """
    rows, ended = view.trainings, [row.evaluation for row in view.trainings]
    place = {m.key: i for i, m in enumerate(view.mechanisms) if view.trained.get(m.key) is m}
    reports = [report for evaluation in ended for report in evaluation.reports]
    zero, metric = view.started.timestamp(), view.metric
    values = [evaluation.metrics.get(metric.name) if metric else None for evaluation in ended]
    unit = metric.unit if metric else ""
    return {
        "mechanism": [place[row.key] for row in rows],
        "seed": [evaluation.seed for evaluation in ended],
        **{
            name: [getattr(evaluation, name) or "" for evaluation in ended]
            for name in ("status", "reason", "worker", "hardware", "error")
        },
        "value": ["" if v is None else amount(v, unit) for v in values],
        "core": [duration(evaluation.core_seconds) for evaluation in ended],
        "took": [duration(evaluation.wall_seconds) for evaluation in ended],
        "memory": [f"{human(evaluation.peak_memory_bytes)}B" for evaluation in ended],
        "wall": _rounded((evaluation.wall_seconds for evaluation in ended), CURVE),
        "ended": _rounded((row.recorded.timestamp() - zero for row in rows), SHORT),
        "epochs": [len(evaluation.reports) for evaluation in ended],
        "loss": _rounded((report.train_loss for report in reports), CURVE),
        "curves": {
            name: _rounded((report.metrics.get(name) for report in reports), CURVE)
            for name in curves
        },
    }


def _curves(view: RunView) -> dict[str, dict[str, str]]:
    """Return the title and unit of each metric that has learning curves, by name of the metric.

    They are the run's metric and the first metric of each gate of its task.
    """
    metric = view.metric
    names = dict.fromkeys(
        name
        for row in view.trainings
        for report in row.evaluation.reports
        for name in report.metrics
    )
    gates = {name.partition(".")[0]: name for name in reversed(names) if "." in name}
    shown = [metric.name, *reversed(gates.values())] if metric else []
    units = {name: view.setup.unit(name) for name in shown}
    return {
        name: {"title": header(name.replace(".", ", "), unit), "unit": unit}
        for name, unit in units.items()
    }


def _fresh(view: RunView) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Return the results of all trainings with seeds that the search never used.

    They are keyed by the mechanism's digest, by the confirmation's part (a key of
    ``RunView.fresh``), and by the metric's name. The entry "lead" is the difference to standard
    attention as text, empty if there is none, and "side" its verdict.
    """
    fresh: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    for metric in view.setup.metrics:
        for (title, key), cell in view.confirmation(metric).cells.items():
            if key not in view.trained or cell.mean is None:
                continue
            entry = fresh.setdefault(view.trained[key].digest, {}).setdefault(title, {})
            lead = cell.difference
            entry[metric.name] = {
                "mean": cell.mean,
                "error": cell.error,
                "seeds": cell.seeds,
                "text": amount(cell.mean, metric.unit, cell.error),
                "lead": gain(lead.mean, lead.error, metric.unit) if lead else "",
                "side": lead.verdict if lead else "",
            }
    return fresh


def _confirmation(
    view: RunView, title: str, training: Training, curves: Sequence[str]
) -> dict[str, Any]:
    """Return the data of a training by ``nas confirm``: a row of a table, and learning curves.

    Args:
        title: part of the confirmation, a key of ``RunView.fresh``.
        curves: names of the metrics with learning curves.
    """
    evaluation, metric = training.evaluation, view.metric
    is_shown = metric is not None and evaluation.is_ok
    value = amount(evaluation.metrics[metric.name], metric.unit) if metric and is_shown else ""
    reason = (evaluation.reason or "").replace("_", " ")
    error = ": ".join(filter(None, (reason, last_line(evaluation.error))))
    return {
        "title": title,
        "digest": view.trained[training.key].digest,
        "seed": evaluation.seed,
        "cells": [
            *(f"{title} ({training.task_name})", str(evaluation.seed), evaluation.status, value),
            *(duration(evaluation.core_seconds), "", "", error),
        ],
        "curves": {
            name: _rounded(report.metrics.get(name) for report in evaluation.reports)
            for name in curves
        },
    }
