"""Records to rows of the database and back: where a value's place and form in a table is decided.

A field is a column of its name; a document is three. Times are ISO 8601 text in UTC, so that they
sort as text and a person can read them; tuples and mappings are JSON. No SQL is run here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, get_args

from nas.common.objectives import Objective
from nas.evaluation.trial import Evaluation, Incident
from nas.genome import Genome
from nas.store.records import (
    Confirmation,
    Counts,
    Document,
    Estimate,
    Generation,
    Part,
    PastSession,
    PastTraining,
    Proposal,
    RunSetup,
    Session,
)

Row = dict[str, Any]
DOCUMENTS = ("space", "policy", "task")


def to_row(
    record: RunSetup | Session | Proposal | Estimate | Confirmation | Evaluation | Incident,
) -> Row:
    """The columns that a record fills."""
    if isinstance(record, Evaluation):
        return {name: _cell(value) for name, value in record.to_dict().items()}
    row: Row = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Document):
            row |= {f"{field.name}_{part}": text(found) for part, found in asdict(value).items()}
        elif isinstance(value, Evaluation):
            row |= to_row(value)
        else:
            row[field.name] = _cell(value)
    return row


def setup_from_row(row: Row) -> RunSetup:
    """Read a row of ``run``."""
    values: Row = {field.name: row.get(field.name) for field in fields(RunSetup)}
    for kind in DOCUMENTS:
        values[kind] = Document(*(row[f"{kind}_{field.name}"] for field in fields(Document)))
    values["objectives"] = tuple(_objective(item) for item in json.loads(row["objectives"]))
    values["calibration"] = dict(json.loads(row["calibration"]))
    setup = RunSetup(**values)
    least = min(setup.population, setup.generations, setup.repeats)
    if not setup.objectives or least < 1 or setup.seed < 0:
        raise ValueError("no objectives, or a number that is too small")
    return setup


def session_from_row(row: Row) -> PastSession:
    """Read a row of ``sessions``."""
    versions = {str(k): str(v) for k, v in json.loads(row["versions"]).items()}
    session = Session(row["command"], versions, row["hardware"], row["workers"])
    ended = None if row["ended"] is None else to_datetime(row["ended"])
    return PastSession(session, row["pid"], row["host"], to_datetime(row["started"]), ended)


def proposal_from_row(row: Row) -> Proposal:
    """Read a row of ``proposals``."""
    where = f"proposal {row['number']}.{row['attempt']}"
    known = {name: value for name, value in row.items() if name != "recorded"}
    known["parents"] = tuple(str(name) for name in json.loads(row["parents"]))
    known["genome"] = Genome.from_dict(json.loads(row["genome"]), where)
    known["costs"] = numbers(row["costs"])
    return Proposal(**known)


def evaluation_from_row(row: Row) -> Evaluation:
    """Read a row of ``trials``, or what one of ``confirmations`` has of it."""
    data = {field.name: row[field.name] for field in fields(Evaluation) if field.name != "weights"}
    for name in ("metrics", "reports", "budget"):
        data[name] = json.loads(row[name])
    return Evaluation.from_dict(data)


def training_from_row(row: Row) -> PastTraining:
    """Read a whole row of ``trials``."""
    moment = to_datetime(row["recorded"])
    return PastTraining(row["key"], row["repeat"], moment, evaluation_from_row(row))


def confirmation_from_row(row: Row) -> Confirmation:
    """Read a row of ``confirmations``."""
    if row["part"] not in get_args(Part):
        raise ValueError(f"a confirmation's part is {row['part']!r}")
    names = {field.name for field in fields(Confirmation)} - {"evaluation"}
    return Confirmation(**{name: row[name] for name in names}, evaluation=evaluation_from_row(row))


def incident_from_row(row: Row) -> Incident:
    """Read a row of ``incidents``."""
    return Incident(**{field.name: row[field.name] for field in fields(Incident)})


def estimate_from_row(row: Row) -> Estimate:
    """A row of ``estimates`` whose JSON is read."""
    means, errors = floats(row["means"]), floats(row["errors"])
    return Estimate(row["key"], means, errors, _finite(row["p"]), bool(row["is_member"]))


def parse(found: Sequence[Row], *names: str) -> None:
    """Read columns of JSON in place; a column at once takes a third of the time of its values."""
    for name in names:
        values = json.loads(f"[{','.join(row[name] for row in found)}]")
        for row, value in zip(found, values, strict=True):
            row[name] = value


def generation_from_row(
    row: Row,
    counts: Mapping[int, Counts],
    fronts: Mapping[int, Sequence[tuple[float, int, str]]],
) -> Generation:
    """Read a row of ``generations``.

    Args:
        counts: of all generations.
        fronts: of all generations, members as the first objective's cost, number and digest.
    """
    number = row["number"]
    return Generation(
        number=number,
        finished=to_datetime(row["finished"]),
        hypervolume=_finite(row["hypervolume"]),
        best=None if row["best"] is None else _finite(row["best"]),
        counts=counts[number],
        front=tuple(digest for *_, digest in sorted(fronts.get(number, ()))),
    )


def numbers(column: str) -> dict[str, float]:
    """Read a column of names and numbers."""
    return floats(json.loads(column))


def floats(values: Mapping[str, Any]) -> dict[str, float]:
    """Names and numbers as they were read."""
    return {str(name): _finite(value) for name, value in values.items()}


def text(value: str) -> str:
    """UTF-8 can hold it: a command line or an error text may carry bytes that are no characters."""
    return value.encode("utf-8", "backslashreplace").decode()


def from_datetime(moment: datetime) -> str:
    """An aware time as text that sorts."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def to_datetime(moment: str) -> datetime:
    """What ``from_datetime`` wrote."""
    found = datetime.fromisoformat(moment)
    if found.tzinfo is None:
        raise ValueError(f"the time {moment!r} lacks its zone")
    return found


def _objective(data: Row) -> Objective:
    ends = {name: _finite(data[name]) for name in ("ideal", "reference")}
    if data["direction"] not in {"max", "min"}:
        raise ValueError(f"an objective's direction is {data['direction']!r}")
    words = {name: str(data[name]) for name in ("name", "unit", "about")}
    return Objective(**{**data, **ends, **words, "is_metric": bool(data["is_metric"])})


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a number is {number}")
    return number


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return text(value)
    return value.to_json() if isinstance(value, Genome) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else asdict(value)
