"""Mechanisms of a run as CSV: one row each, columns with units in their names, numbers in full.

For spreadsheets, `pandas.read_csv` and whatever else reads rows. A metric has three numbers, never
mixed up: what the search believes (``estimate``, with its ``error``), what it measured (``score``),
and the mean of trainings with fresh seeds (``fresh``, ``long``, ``test``).
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Final

from nas.report.text import printable

if TYPE_CHECKING:
    from nas.report.facts import RunFacts
    from nas.store import Candidate

# A spreadsheet takes a text that begins so for a formula, and runs it.
FORMULAS: Final = ("=", "+", "-", "@", "\t")


def front_csv(facts: RunFacts, *, every: bool = False) -> str:
    """The front as CSV, best first; or every mechanism whose training ended well, as proposed.

    Names and formulas are texts that somebody else may have written: one that a spreadsheet would
    run has an apostrophe before it.
    """
    members = {member.digest for member in facts.members}
    shown = facts.candidates if every else facts.members
    rows = [_row(facts, one, is_member=one.digest in members) for one in shown]
    names = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, names))
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return text.getvalue()


def _row(facts: RunFacts, one: Candidate, *, is_member: bool) -> dict[str, Any]:
    """A mechanism; what is not known of it is left out or None."""
    row: dict[str, Any] = {
        "id": one.digest,
        "name": " = ".join(facts.names_of(one)),
        "in_front": int(is_member),
    }
    for o in (o for o in facts.setup.objectives if o.is_metric):
        row[_column(o.name, "estimate", o.unit)] = None if one.p is None else one.objectives[o.name]
        row[_column(o.name, "error", o.unit)] = one.errors.get(o.name)
    units = {o.name: o.unit for o in facts.setup.objectives}
    row |= {_column(n, "score", units.get(n, "")): value for n, value in one.scores.items()}
    row |= {"seeds": one.trainings, "p_non_dominated": one.p}
    row |= _fresh(facts, one) | dict(one.proposal.costs)
    return row | {
        "formula": one.proposal.formula,
        "proposed": one.proposal.number,
        "operator": one.proposal.operator,
        "parents": " ".join(one.proposal.parents),
    }


def _fresh(facts: RunFacts, one: Candidate) -> dict[str, Any]:
    """What trainings with fresh seeds gave; columns of every part that the run has."""
    metric = next((o for o in facts.setup.objectives if o.is_metric), None)
    row: dict[str, Any] = {}
    if metric is None:
        return row
    confirmed = facts.confirmed(one)
    for title in facts.fresh:
        found = confirmed.get(title, {})
        name = f"{title} {metric.name}".replace(" ", "_")
        row[_column(name, "mean", metric.unit)] = found.get("mean")
        row[_column(name, "error", metric.unit)] = found.get("error")
        row[f"{title.replace(' ', '_')}_seeds"] = len(found.get("values", ())) or None
    return row


def _column(name: str, what: str, unit: str) -> str:
    """The name of a column; a unit that the name says already is not said again."""
    return "_".join([name, what, *([unit] if unit and unit.lower() not in name.lower() else [])])


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(FORMULAS) else text
