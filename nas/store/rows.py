"""Records to rows of the database and back: where a value's place and form in a table is decided.

Times are ISO 8601 text in UTC, so that they sort as text and a person can read them; tuples and
mappings are JSON. No SQL is run here.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, cast, get_args

from nas.evaluation.trial import Evaluation
from nas.genome import Genome
from nas.objectives import Objective
from nas.store.records import Document, PastSession, Proposal, RunSetup, RunStatus, Session

Row = dict[str, Any]
DOCUMENTS = ("space", "policy", "task")
PLAIN = ("seed", "algorithm", "population", "generations", "lag", "repeats")
COUNTED = ("population", "generations", "repeats")


def setup_to_row(setup: RunSetup) -> Row:
    """The columns of ``run`` that a setup fills."""
    row: Row = {name: getattr(setup, name) for name in PLAIN}
    row["objectives"] = _json([asdict(objective) for objective in setup.objectives])
    row["calibration"] = _json(dict(setup.calibration))
    for kind in DOCUMENTS:
        document: Document = getattr(setup, kind)
        row[f"{kind}_name"] = text(document.name)
        row[f"{kind}_text"] = text(document.text)
        row[f"{kind}_fingerprint"] = document.fingerprint
    return row


def setup_from_row(row: Row) -> RunSetup:
    """Read a row of ``run``."""
    documents: Row = {
        kind: Document(row[f"{kind}_name"], row[f"{kind}_text"], row[f"{kind}_fingerprint"])
        for kind in DOCUMENTS
    }
    objectives = tuple(_objective(item) for item in json.loads(row["objectives"]))
    if not objectives:
        raise ValueError("the run has no objectives")
    plain = {name: row[name] for name in PLAIN}
    if min(plain[name] for name in COUNTED) < 1 or plain["seed"] < 0:
        raise ValueError(f"a number is too small in {plain}")
    calibration = dict(json.loads(row["calibration"]))
    return RunSetup(**plain, **documents, objectives=objectives, calibration=calibration)


def session_to_row(session: Session) -> Row:
    """The columns of ``sessions`` that a session fills."""
    return {
        "command": text(session.command),
        "hardware": text(session.hardware),
        "workers": session.workers,
        "versions": _json(dict(session.versions)),
    }


def session_from_row(row: Row) -> PastSession:
    """Read a row of ``sessions``."""
    versions = {str(k): str(v) for k, v in json.loads(row["versions"]).items()}
    session = Session(row["command"], versions, row["hardware"], row["workers"])
    ended = None if row["ended"] is None else to_datetime(row["ended"])
    return PastSession(session, row["pid"], row["host"], to_datetime(row["started"]), ended)


def proposal_to_row(proposal: Proposal) -> Row:
    """The columns of ``proposals`` that a proposal fills."""
    names = ("number", "attempt", "digest", "key", "verdict")
    return {
        **{name: getattr(proposal, name) for name in names},
        "genome": proposal.genome.to_json(),
        "formula": text(proposal.formula),
        "operator": text(proposal.operator),
        "name": None if proposal.name is None else text(proposal.name),
        "parents": _json(proposal.parents),
        "note": text(proposal.note),
        "costs": _json(dict(proposal.costs)),
    }


def proposal_from_row(row: Row) -> Proposal:
    """Read a row of ``proposals``."""
    where = f"proposal {row['number']}.{row['attempt']}"
    known = {name: value for name, value in row.items() if name != "recorded"}
    known["parents"] = tuple(str(name) for name in json.loads(row["parents"]))
    known["genome"] = Genome.from_dict(json.loads(row["genome"]), where)
    known["costs"] = numbers(row["costs"])
    return Proposal(**known)


def evaluation_to_row(evaluation: Evaluation) -> Row:
    """The columns of ``trials`` that an evaluation fills."""
    row = evaluation.to_dict()
    for name in ("metrics", "reports", "budget"):
        row[name] = _json(row[name])
    for name in ("worker", "hardware", "execution", "error"):
        row[name] = None if row[name] is None else text(row[name])
    return row


def evaluation_from_row(row: Row) -> Evaluation:
    """Read a row of ``trials``."""
    data = {name: value for name, value in row.items() if name not in {"key", "repeat", "recorded"}}
    for name in ("metrics", "reports", "budget"):
        data[name] = json.loads(row[name])
    return Evaluation.from_dict(data)


def to_status(found: str) -> RunStatus:
    """Read how a run stands."""
    if found not in get_args(RunStatus):
        raise ValueError(f"the status {found!r}")
    return cast("RunStatus", found)


def numbers(column: str) -> dict[str, float]:
    """Read a column of names and numbers."""
    return {str(name): float(value) for name, value in json.loads(column).items()}


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
    ends = {name: float(data[name]) for name in ("ideal", "reference")}
    if data["direction"] not in {"max", "min"}:
        raise ValueError(f"an objective's direction is {data['direction']!r}")
    return Objective(**{**data, **ends})


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)
