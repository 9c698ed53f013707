"""Conversion of records to database rows and back. This module runs no SQL.

Each field is stored in a column of the same name, except that a ``Document`` has three columns and
the settings of the search have a column each. Times are ISO 8601 text in UTC, so that they sort as
text. Tuples and mappings are JSON. Functions that read a row raise an exception of any kind if the
row is damaged; ``nas.store.run`` turns it into a RunError.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, Final, get_args

from pydantic import TypeAdapter

from nas.common.objectives import Metric, Objective
from nas.common.search_config import SearchConfig
from nas.evaluation.trial import Evaluation, Incident, Purpose, Stage, Training
from nas.genome import Genome
from nas.store.records import Document, Estimate, PastSession, Proposal, RunSetup, Session

Row = dict[str, Any]
DOCUMENTS: Final = ("space", "policy", "task", "target")
# Fields of a training that are columns, in addition to the fields of its evaluation.
TRAINING: Final = ("purpose", "stage", "task", "task_name", "key", "name", "repeat")
_OBJECTIVES: Final = TypeAdapter(tuple[Objective, ...])
_METRICS: Final = TypeAdapter(tuple[Metric, ...])


def to_row(record: RunSetup | Session | Proposal | Estimate | Incident) -> Row:
    """Return a record as a database row, that is, its values by name of the column."""
    row: Row = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name == "target" and value is None:
            row |= dict.fromkeys(("target_name", "target_text", "target_fingerprint"))
        elif isinstance(value, Document):
            row |= {f"{field.name}_{part}": text(item) for part, item in asdict(value).items()}
        elif isinstance(value, SearchConfig):
            row |= asdict(value)
        else:
            row[field.name] = _cell(value)
    return row


def training_to_row(training: Training) -> Row:
    """Return a training as a row of the table ``trainings``."""
    values = {name: getattr(training, name) for name in TRAINING} | training.evaluation.to_dict()
    values["name"] = training.name or None
    return {name: _cell(value) for name, value in values.items()}


def setup_from_row(row: Row) -> RunSetup:
    """Return the setup of a run from its row of the table ``run``."""
    documents = {
        kind: Document(*(row[f"{kind}_{field.name}"] for field in fields(Document)))
        for kind in DOCUMENTS
        if row[f"{kind}_name"] is not None
    }
    setup = RunSetup(
        config=SearchConfig(**{field.name: row[field.name] for field in fields(SearchConfig)}),
        objectives=_OBJECTIVES.validate_json(row["objectives"]),
        metrics=_METRICS.validate_json(row["metrics"]),
        calibration=dict(json.loads(row["calibration"])),
        **documents,
    )
    if not setup.objectives:
        raise ValueError("no objectives")
    return setup


def session_from_row(row: Row) -> PastSession:
    """Return a session from its row of the table ``sessions``."""
    versions = {str(k): str(v) for k, v in json.loads(row["versions"]).items()}
    session = Session(row["command"], versions, row["hardware"], row["workers"])
    ended = None if row["ended"] is None else to_datetime(row["ended"])
    return PastSession(session, row["pid"], row["host"], to_datetime(row["started"]), ended)


def proposal_from_row(row: Row) -> Proposal:
    """Return a proposal from its row of the table ``proposals``."""
    where = f"proposal {row['number']}.{row['attempt']}"
    values = {name: value for name, value in row.items() if name != "recorded"}
    values["parents"] = tuple(str(name) for name in json.loads(row["parents"]))
    values["genome"] = Genome.from_dict(json.loads(row["genome"]), where)
    values["costs"] = numbers(row["costs"])
    return Proposal(**values)


def training_from_row(row: Row) -> Training:
    """Return a training from its row of the table ``trainings``."""
    if row["purpose"] not in get_args(Purpose) or row["stage"] not in get_args(Stage):
        raise ValueError(f"a training's purpose is {row['purpose']!r}, its stage {row['stage']!r}")
    data = {field.name: row[field.name] for field in fields(Evaluation) if field.name != "weights"}
    for name in ("metrics", "reports", "budget"):
        data[name] = json.loads(row[name])
    return Training(
        **{**{name: row[name] for name in TRAINING}, "name": row["name"] or ""},
        evaluation=Evaluation.from_dict(data),
        recorded=to_datetime(row["recorded"]),
    )


def incident_from_row(row: Row) -> Incident:
    """Return a failure of a worker from its row of the table ``incidents``."""
    return Incident(**{field.name: row[field.name] for field in fields(Incident)})


def estimate_from_row(row: Row) -> Estimate:
    """Return an estimate from its row of the table ``estimates``."""
    means, errors = numbers(row["means"]), numbers(row["errors"])
    return Estimate(row["key"], means, errors, finite(row["p"]), bool(row["is_member"]))


def numbers(column: str) -> dict[str, float]:
    """Return a column's JSON object of numbers as a dict; raise ValueError if one is not finite."""
    return {str(name): finite(value) for name, value in json.loads(column).items()}


def finite(value: Any) -> float:
    """Return a value as a number; raise ValueError unless it is finite."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a number is {number}")
    return number


def text(value: str) -> str:
    """Return a text with escapes for surrogates, which UTF-8 cannot encode.

    Surrogates occur in command lines that contain bytes other than UTF-8.
    """
    return value.encode("utf-8", "backslashreplace").decode()


def from_datetime(moment: datetime) -> str:
    """Return an aware datetime as text. Such texts sort by time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def to_datetime(moment: str) -> datetime:
    """Parse the output of ``from_datetime``; raise ValueError if the time zone is missing."""
    time = datetime.fromisoformat(moment)
    if time.tzinfo is None:
        raise ValueError(f"the time {moment!r} lacks its zone")
    return time


def _cell(value: Any) -> Any:
    """Return a number, text or None unchanged, and any other value as JSON text."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return text(value)
    return value.to_json() if isinstance(value, Genome) else _json(value)


def _json(value: Any) -> str:
    def plain(item: Any) -> Any:
        return dict(item) if isinstance(item, Mapping) else asdict(item)

    return json.dumps(value, allow_nan=False, default=plain)
