"""Conversion of records to database rows and back.

Each field is stored in a column of the same name, a document in three columns. Times are ISO 8601
text in UTC, so that they sort as text; tuples and mappings are JSON. This module runs no SQL.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, Final, get_args

from pydantic import TypeAdapter

from nas.common.objectives import Metric, Objective
from nas.common.search_config import SearchConfig
from nas.evaluation.trial import Evaluation, Incident, Purpose, Stage, Training
from nas.genome import Genome
from nas.store.records import (
    Counts,
    Document,
    Estimate,
    Generation,
    PastSession,
    Proposal,
    RunSetup,
    Session,
)

Row = dict[str, Any]
_OBJECTIVES: Final = TypeAdapter(tuple[Objective, ...])
_METRICS: Final = TypeAdapter(tuple[Metric, ...])
DOCUMENTS = ("space", "policy", "task")
# Fields of a training that are columns, beside those of its evaluation.
TRAINING = ("purpose", "stage", "task", "task_name", "key", "name", "repeat")


def to_row(record: RunSetup | Session | Proposal | Estimate | Incident) -> Row:
    """The columns of a record."""
    row: Row = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Document):
            row |= {f"{field.name}_{part}": text(item) for part, item in asdict(value).items()}
        elif isinstance(value, SearchConfig):
            row |= asdict(value)
        else:
            row[field.name] = _cell(value)
    return row


def training_to_row(training: Training) -> Row:
    """The columns of a training."""
    values = {name: getattr(training, name) for name in TRAINING} | training.evaluation.to_dict()
    return {
        name: _cell(value) for name, value in (values | {"name": training.name or None}).items()
    }


def setup_from_row(row: Row) -> RunSetup:
    """Read a row of ``run``."""
    documents = {
        kind: Document(*(row[f"{kind}_{field.name}"] for field in fields(Document)))
        for kind in DOCUMENTS
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
    """Read a row of ``sessions``."""
    versions = {str(k): str(v) for k, v in json.loads(row["versions"]).items()}
    session = Session(row["command"], versions, row["hardware"], row["workers"])
    ended = None if row["ended"] is None else to_datetime(row["ended"])
    return PastSession(session, row["pid"], row["host"], to_datetime(row["started"]), ended)


def proposal_from_row(row: Row) -> Proposal:
    """Read a row of ``proposals``."""
    where = f"proposal {row['number']}.{row['attempt']}"
    values = {name: value for name, value in row.items() if name != "recorded"}
    values["parents"] = tuple(str(name) for name in json.loads(row["parents"]))
    values["genome"] = Genome.from_dict(json.loads(row["genome"]), where)
    values["costs"] = numbers(row["costs"])
    return Proposal(**values)


def training_from_row(row: Row) -> Training:
    """Read a row of ``trainings``."""
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
    """Read a row of ``incidents``."""
    return Incident(**{field.name: row[field.name] for field in fields(Incident)})


def estimate_from_row(row: Row) -> Estimate:
    """Read a row of ``estimates`` whose JSON columns are parsed."""
    means, errors = floats(row["means"]), floats(row["errors"])
    return Estimate(row["key"], means, errors, _finite(row["p"]), bool(row["is_member"]))


def parse(rows: Sequence[Row], *names: str) -> None:
    """Parse JSON columns in place: a column at once, in a third of the time of single values."""
    for name in names:
        values = json.loads(f"[{','.join(row[name] for row in rows)}]")
        for row, value in zip(rows, values, strict=True):
            row[name] = value


def generation_from_row(
    row: Row,
    counts: Mapping[int, Counts],
    fronts: Mapping[int, Sequence[tuple[float, int, str]]],
) -> Generation:
    """Read a row of ``generations``.

    Args:
        counts: by generation.
        fronts: by generation, members as (cost in the first objective, number, digest).
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
    """Parse a JSON column of numbers by name."""
    return floats(json.loads(column))


def floats(values: Mapping[str, Any]) -> dict[str, float]:
    """Numbers by name; ValueError unless all are finite."""
    return {str(name): _finite(value) for name, value in values.items()}


def text(value: str) -> str:
    """The text as valid UTF-8: surrogates, as in command lines, are replaced by escapes."""
    return value.encode("utf-8", "backslashreplace").decode()


def from_datetime(moment: datetime) -> str:
    """An aware time as text, which sorts by time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def to_datetime(moment: str) -> datetime:
    """The time that ``from_datetime`` wrote."""
    time = datetime.fromisoformat(moment)
    if time.tzinfo is None:
        raise ValueError(f"the time {moment!r} lacks its zone")
    return time


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
