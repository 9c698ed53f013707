"""Data of the page's sections: the table of mechanisms, and what holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from nas.common.differences import Difference
from nas.common.errors import RunError
from nas.common.objectives import Objective
from nas.common.text import plural
from nas.report.comparison import Row
from nas.report.comparison_table import comparison_columns, comparison_legend
from nas.report.explanation import (
    TITLES,
    ExplainResult,
    ExplainRow,
    explanation_columns,
    explanation_legend,
)
from nas.report.front_columns import front_columns
from nas.report.page.rendering import address
from nas.report.run_view import FRESH, UNIFORM, RunView
from nas.report.table import Column, Table
from nas.report.units import FRACTION, header, minus, points, quantity
from nas.store import Candidate

T = TypeVar("T")

# Columns of `nas front` of which the page has its own.
LEFT_OUT: Final = ("id", "name", "formula")
WIDTH: Final = 160.0  # of a drawn interval, in pixels
ORDER: Final = ("needed", "harmful", "harmless", "undecided")


def table(views: Sequence[RunView]) -> dict[str, Any]:
    """Return the table of all mechanisms of runs, the best by the first objective first."""
    columns: dict[str, Column[Candidate]] = {}
    tables = []
    for view in views:
        mechanisms = sorted(view.mechanisms, key=partial(_rank, view))
        shown = {c.key: (c, texts) for c, texts in Table(_columns(view), mechanisms).shown}
        columns |= {key: c for key, (c, _) in shown.items() if key not in columns}
        tables.append((view, mechanisms, shown))
    rows = []
    for view, mechanisms, shown in tables:
        members = {member.digest for member in view.members}
        for i, mechanism in enumerate(mechanisms):
            cells: list[tuple[str, Any, bool]] = []
            for key in columns:
                column, texts = shown.get(key, (None, ()))
                value = column.value(mechanism) if column else None
                cells.append((minus(texts[i]) if column else "", value, columns[key].is_number))
            name = view.name_of(mechanism)
            rows.append(
                {
                    "run": view.name,
                    "kind": "named" if name else "member" * (mechanism.digest in members),
                    "name": view.called(mechanism),
                    "address": address(view.name, mechanism.digest),
                    "digest": mechanism.digest,
                    "cells": cells,
                }
            )
    return {"heads": [(c.title, c.is_number) for c in columns.values()], "rows": rows}


def _columns(view: RunView) -> list[Column[Candidate]]:
    return [
        *(c for c in front_columns(view) if c.title and c.key not in LEFT_OUT),
        Column("generation", "gen", view.generation),
        Column("operator", "made by", lambda m: m.proposal.operator, is_number=False),
        Column("state", "state", lambda m: m.status, is_number=False),
        Column("formula", "formula", lambda m: m.proposal.formula, is_number=False),
    ]


def _rank(view: RunView, mechanism: Candidate) -> tuple[bool, float]:
    objective, values = view.setup.objectives[0], mechanism.objectives
    return not values, objective.as_cost(values[objective.name]) if values else 0.0


def _drawing(scaled: Iterable[Difference], margin: float) -> Callable[[Difference], dict[str, Any]]:
    """Return a function that returns positions of a difference and its interval, in pixels.

    The drawing contains 0, with ``margin`` on each side, and the differences ``scaled``.
    """
    values = (end for d in scaled for end in (d.mean, d.low, d.high) if end is not None)
    ends = [*values, 0.0]
    room = 0.06 * (max(ends) - min(ends)) or 1.0
    left, right = min(ends) - room, max(ends) + room

    def place(value: float) -> float:
        return WIDTH * min(1.0, max(0.0, (value - left) / (right - left)))

    def drawn(difference: Difference) -> dict[str, Any]:
        mean, low, high = difference.mean, difference.low, difference.high
        return {
            "width": WIDTH,
            "zero": place(0.0),
            "band": (place(-margin), place(margin)),
            "mean": place(mean),
            "beyond": (mean > right) - (mean < left),  # side outside of the drawing
            "ends": None if low is None or high is None else (place(low), place(high)),
            "verdict": difference.verdict,
        }

    return drawn


def judged(
    table: Table[T], *, is_scaled: Callable[[T], bool] = bool, margin: float = 0.0
) -> tuple[list[str], list[list[tuple[str, str, dict[str, Any] | None]]]]:
    """Return the titles of a table, and of each row its cells: kind, text and drawn difference.

    Only differences of rows for which ``is_scaled`` is true set the scale of the drawings.
    """
    titles, rows = [], list[list[Any]]([] for _ in table.rows)
    for column, texts in table.shown:
        titles.append(column.title or "")
        of = column.interval or (lambda _: None)
        scaled = [lead for row in table.rows if is_scaled(row) and (lead := of(row))]
        draw = _drawing(scaled or filter(None, map(of, table.rows)), margin)
        for cells, row, text in zip(rows, table.rows, texts, strict=True):
            text, drawn = minus(text.partition(" (")[0]) if column.is_number else text, None
            if lead := of(row):  # the interval is drawn, so its numbers are a tooltip
                drawn = draw(lead) | {"words": text}
                text = minus(points(lead.mean, lead.error, column.unit))
            cells.append(("number" if column.is_number else column.key, text, drawn))
    return titles, rows


def confirmations(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """Return the table of ``nas confirm`` for each run with confirmed mechanisms, best first."""
    return [
        _confirmation(view, view.metric)
        for view in views
        if view.metric and view.fresh.get(FRESH["search"])
    ]


def _confirmation(view: RunView, metric: Objective) -> dict[str, Any]:
    fresh, recorded = view.fresh[FRESH["search"]], view.confirmation(metric)
    rows = [row for row in recorded.rows if row.mechanism in fresh.keys() & view.trained.keys()]
    rows.sort(key=lambda row: metric.as_cost(fresh[row.mechanism].mean or 0.0))
    mechanisms = [view.trained[row.mechanism] for row in rows]
    named = [
        replace(row, mechanism=view.called(mechanism))
        for row, mechanism in zip(rows, mechanisms, strict=True)
    ]
    result = replace(recorded, rows=tuple(named), against=view.reference)
    columns: list[Column[Row]] = []
    for column in sorted(comparison_columns(result), key=lambda column: column.rank > 1):
        columns.append(column)
        if column.interval:  # differences precede their means
            title = f"{columns[-2].title} {column.title}{', points' * (metric.unit == FRACTION)}"
            columns[-2:] = replace(column, title=title), columns[-2]
    table = Table(columns, named)
    heads, cells = judged(table, is_scaled=lambda row: row.mechanism != UNIFORM)
    found, _, *legend = comparison_legend(result)
    seeds = plural(max(cell.seeds for cell in result.cells.values()), "seed")
    links = [
        (address(view.name, m.digest), "named" if m.key in view.names else "") for m in mechanisms
    ]
    return {
        "run": view.name,
        "heads": heads,
        "rows": [*zip(links, cells, strict=True)],
        "legend": [f"{header(metric.name, metric.unit)}, means over {seeds}.", found, *legend],
    }


def explanations(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """Return the data of a section for each recorded explanation of the runs."""
    read = TypeAdapter(ExplainResult).validate_python
    try:
        return [_explanation(view, read(answer)) for view in views for answer in view.explained]
    except ValidationError:
        text = "an explanation that another version of nas recorded; `nas explain` trains it again"
        raise RunError(f"a run holds {text}.") from None


def _explanation(view: RunView, result: ExplainResult) -> dict[str, Any]:
    metric, explained = result.metric, result.mechanism
    candidate, mean = view.by_digest.get(explained.id), explained.trained.mean
    name = view.called(candidate) if candidate else result.source
    reached = "it could not be trained"
    if mean is not None:
        value = quantity(mean, metric.unit, explained.trained.error)
        reached = f"{metric.name.replace('_', ' ')} {value}"
    sign = 1 if metric.direction == "max" else -1  # the edit of the largest loss is first
    edits = sorted(result.edits, key=lambda e: sign * e.difference.mean if e.difference else 0.0)
    rows = [*edits, *result.controls]
    heads, cells = judged(Table(explanation_columns(result), rows), margin=result.margin)
    parts = {"edits": cells[: len(edits)], "controls": cells[len(edits) :]}
    return {
        "name": name,
        "address": address(view.name, explained.id),
        "about": f"{reached} under {result.task}, {plural(result.seeds, 'fresh seed')}",
        "summary": _summary(edits, metric.unit),
        "heads": heads,
        "parts": [(TITLES[part].format(source=name), own) for part, own in parts.items() if own],
        "legend": explanation_legend(result),
    }


def _summary(edits: Sequence[ExplainRow], unit: str) -> str:
    counts = Counter(row.verdict for row in edits)
    verdicts = ", ".join(f"{counts[word]} {word}" for word in ORDER if counts[word])
    summary = f"Of {plural(len(edits), 'part')}: {verdicts}."
    needed = [row for row in edits if row.verdict == "needed"]
    if not needed or (lead := needed[0].difference) is None:
        return summary
    gain = minus(points(lead.mean, lead.error, unit))
    return f"{summary} The largest loss: {needed[0].words}, {gain}."
