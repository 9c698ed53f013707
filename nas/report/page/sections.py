"""Data of the page's sections: the table of mechanisms, and what holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nas.common.text import plural
from nas.report.explanation import ROWS, TITLES
from nas.report.front_columns import front_columns
from nas.report.page.rendering import address
from nas.report.run_view import FRESH, STANDARD, UNIFORM, RunView
from nas.report.table import Column, Table
from nas.report.units import FRACTION, amount, header, minus, multiple, points, quantity, signed
from nas.store import Candidate

if TYPE_CHECKING:
    Answer = Mapping[str, Any]

# Columns of `nas front` of which the page has its own.
LEFT_OUT: Final = ("id", "name", "formula")
WIDTH: Final = 160.0  # of a drawn interval, in pixels
ORDER: Final = ("needed", "harmful", "harmless", "unresolved")


def table(views: Sequence[RunView]) -> dict[str, Any]:
    """Return the table of all mechanisms of runs, the best by the first objective first.

    Its columns are those of ``nas front``, then generation, operator, state and formula.
    """
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


@dataclass(frozen=True)
class IntervalScale:
    """A linear map from differences to pixels of a drawing of intervals, which contains 0."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> IntervalScale:
        """Return a scale over the values and 0, with a margin at each end."""
        ends = [*values, 0.0]
        room = 0.06 * (max(ends) - min(ends)) or 1.0
        return cls(min(ends) - room, max(ends) + room)

    def __call__(self, value: float) -> float:
        """Return the position of a value in pixels, within the drawing."""
        share = (value - self.low) / (self.high - self.low)
        return WIDTH * min(1.0, max(0.0, share))

    def interval(self, difference: Mapping[str, Any], unit: str) -> dict[str, Any]:
        """Return positions of a difference and its 95 % interval, and both as text.

        The value of "beyond" is -1 or 1 for a difference to the left or right of the drawing.
        ``difference`` has the keys "mean", "error", "low" and "high".
        """
        mean, low, high = (difference[name] for name in ("mean", "low", "high"))
        drawn: dict[str, Any] = {
            "width": WIDTH,
            "zero": self(0.0),
            "mean": self(mean),
            "beyond": (mean > self.high) - (mean < self.low),
            "ends": None,
            "words": "",
        }
        if low is not None and high is not None:
            words = " to ".join(minus(points(end, None, unit)) for end in (low, high))
            drawn |= {"ends": (self(low), self(high)), "words": f"95 % interval {words}"}
        return drawn | {"text": minus(points(mean, difference["error"], unit))}


def confirmations(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """Return a table of the confirmed mechanisms of each run that has some.

    A confirmed mechanism was trained again with seeds that the search never used. Its row has, for
    each part of the confirmation, the difference to standard attention and the mean over fresh
    seeds, then the mean in the search, the estimate and the costs. The differences of the control
    ``uniform`` do not set the scale of the drawings.
    """
    return [
        _confirmation(view) for view in views if view.metric and view.fresh.get(FRESH["search"])
    ]


def _confirmation(view: RunView) -> dict[str, Any]:
    metric, fresh = view.metric, view.fresh[FRESH["search"]]
    assert metric is not None
    unit, name = metric.unit, metric.name
    keys = [key for key in fresh if key in view.trained]
    keys.sort(key=lambda key: metric.as_cost(fresh[key].mean or 0.0))
    others = [key for key in keys if view.called(view.trained[key]) != UNIFORM]
    scales = {
        part: IntervalScale.over(
            end
            for key in others or keys
            if key in cells and (lead := cells[key].difference)
            for end in (lead.mean, lead.low, lead.high)
            if end is not None
        )
        for part, cells in view.fresh.items()
    }
    costs = [o.name for o in view.setup.objectives if not o.is_metric]
    rows = []
    for key in keys:
        mechanism = view.trained[key]
        shares = view.shares(mechanism)
        estimate, error = mechanism.objectives.get(name), mechanism.errors.get(name)
        parts = []
        for part, cells in view.fresh.items():
            cell = cells.get(key)
            lead = cell.difference if cell else None
            drawn = scales[part].interval(lead.to_dict(), unit) if lead else None
            mean = _amount(cell.mean, unit, cell.error) if cell else ""
            parts.append((lead.verdict if lead else "", drawn, mean))
        rows.append(
            {
                "name": view.called(mechanism),
                "address": address(view.name, mechanism.digest),
                "kind": "named" if key in view.names else "",
                "parts": parts,
                "cells": [
                    _amount(mechanism.scores.get(name), unit),
                    _amount(estimate, unit, error),
                    *(multiple(shares[cost]) if cost in shares else "" for cost in costs),
                ],
            }
        )
    tasks, what = view.confirmation(metric).tasks, "points" if unit == FRACTION else unit
    heads = ["mechanism"]
    for part in view.fresh:
        heads.append(f"{part} over {STANDARD}, {what}")
        heads.append(f"{part} ({tasks[part]})" if part in tasks else part)
    heads += [
        *("score", "estimate"),
        *(f"{header(cost).removesuffix(' ms')} × {STANDARD}" for cost in costs),
    ]
    return {"run": view.name, "metric": header(name, unit), "heads": heads, "rows": rows}


def _amount(value: float | None, unit: str, error: float | None = None) -> str:
    return "" if value is None else amount(value, unit, error)


def explanations(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """Return the data of a section for each recorded explanation of the runs."""
    return [_explanation(view, answer) for view in views for answer in view.explained]


def _explanation(view: RunView, answer: Answer) -> dict[str, Any]:
    digest, metric = answer["id"], answer["metric"]
    unit, words = metric["unit"], metric["name"].replace("_", " ")
    candidate = view.by_digest.get(digest)
    name = view.called(candidate) if candidate else digest[:8]
    reached = "it could not be trained"
    if answer["mean"] is not None:
        reached = f"{words} {quantity(answer['mean'], unit, answer['error'])}"
    rows = [row for part in TITLES for row in answer[part]]
    ends = [d[end] for row in rows if (d := row["difference"]) for end in ("low", "high")]
    scale = IntervalScale.over(ends)
    band = [scale(sign * answer["margin"]) for sign in (-1, 1)]
    names = rows[0]["added_costs"] if rows else ()
    costs = [name for name in names if any(row["added_costs"][name] for row in rows)]
    return {
        "name": name,
        "address": address(view.name, digest),
        "about": f"{reached} under {answer['task']}, {plural(len(answer['values']), 'fresh seed')}",
        "summary": _summary(answer["edits"], unit),
        "heads": [
            " or ".join(ROWS.values()),
            "verdict",
            "difference",
            *map(header, costs),
            "formula",
        ],
        "parts": [
            (title.format(source=name), _explained_part(part, answer, scale, band, costs))
            for part, title in TITLES.items()
            if answer[part]
        ],
        "what": f"points of {words}" if unit == FRACTION else words,
        "margin": points(answer["margin"], None, unit).lstrip("+"),
    }


def _summary(edits: Sequence[Answer], unit: str) -> str:
    """Return a text: the number of edits with each verdict, and the edit with the largest loss."""
    counts = Counter(row["verdict"] for row in edits)
    verdicts = ", ".join(f"{counts[word]} {word}" for word in ORDER if counts[word])
    summary = f"Of {plural(len(edits), 'part')}: {verdicts}."
    needed = [row for row in edits if row["verdict"] == "needed"]
    if not needed:
        return summary
    most = max(needed, key=lambda row: abs(row["difference"]["mean"]))
    gain = minus(points(most["difference"]["mean"], most["difference"]["error"], unit))
    return f"{summary} The largest loss: {most['words']}, {gain}."


def _explained_part(
    part: str, answer: Answer, scale: IntervalScale, band: Sequence[float], costs: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the rows of a part of an explanation; the edit of largest loss is first."""
    rows, unit = answer[part], answer["metric"]["unit"]
    if part == "edits":
        sign = 1 if answer["metric"]["direction"] == "max" else -1
        rows = sorted(
            rows, key=lambda row: sign * row["difference"]["mean"] if row["difference"] else 0.0
        )
    lines = []
    for row in rows:
        failed = "; ".join(f"{count} failed, {reason}" for reason, count in row["failed"].items())
        difference = row["difference"]
        lines.append(
            {
                "words": f"{row['words']} ({failed})" if failed else str(row["words"]),
                "drawn": scale.interval(difference, unit) | {"band": band} if difference else None,
                "verdict": str(row["verdict"]),
                "costs": [minus(signed(row["added_costs"][cost])) for cost in costs],
                "formula": str(row["formula"]),
            }
        )
    return lines
