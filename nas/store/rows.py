"""Records to rows of the database and back: where a value's place and form in a table is decided.

Times are ISO 8601 text in UTC, so that they sort as text and a person can read them; tuples and
mappings are JSON. No SQL is run here.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nas.evaluation.record import Evaluation, Objective
from nas.genome import Genome
from nas.store.records import (
    Counts,
    Document,
    Generation,
    PastSession,
    Proposal,
    RunSetup,
    Session,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

Row = dict[str, Any]
DOCUMENTS = ("space", "policy", "task")
COUNTS = ("proposed", "evaluated", "replayed", "rejected", "failed")


def setup_to_row(setup: RunSetup) -> Row:
    """The columns of ``run`` that a setup fills."""
    row: Row = {
        "seed": setup.seed,
        "algorithm": setup.algorithm,
        "population": setup.population,
        "generations": setup.generations,
        "repeats": setup.repeats,
        "objectives": _json([_objective_to_dict(objective) for objective in setup.objectives]),
        "ideal_point": _json(setup.ideal_point),
        "reference_point": _json(setup.reference_point),
        "choices": _json(setup.choices),
    }
    for kind in DOCUMENTS:
        document: Document = getattr(setup, kind)
        row[f"{kind}_name"] = text(document.name)
        row[f"{kind}_text"] = text(document.text)
        row[f"{kind}_fingerprint"] = document.fingerprint
    return row


def setup_from_row(row: Row) -> RunSetup:
    """Read a row of ``run``."""
    documents = {
        kind: Document(row[f"{kind}_name"], row[f"{kind}_text"], row[f"{kind}_fingerprint"])
        for kind in DOCUMENTS
    }
    return RunSetup(
        seed=row["seed"],
        algorithm=row["algorithm"],
        population=row["population"],
        generations=row["generations"],
        repeats=row["repeats"],
        objectives=tuple(Objective(**item) for item in json.loads(row["objectives"])),
        ideal_point=tuple(json.loads(row["ideal_point"])),
        reference_point=tuple(json.loads(row["reference_point"])),
        choices=json.loads(row["choices"]),
        **documents,
    )


def session_to_row(session: Session) -> Row:
    """The columns of ``sessions`` that a session fills."""
    return {
        "command": text(session.command),
        "processor": text(session.processor),
        "workers": session.workers,
        "versions": _json(session.versions),
    }


def session_from_row(row: Row) -> PastSession:
    """Read a row of ``sessions``."""
    versions = json.loads(row["versions"])
    session = Session(row["command"], versions, row["processor"], row["workers"])
    ended = None if row["ended"] is None else to_datetime(row["ended"])
    return PastSession(session, row["pid"], row["host"], to_datetime(row["started"]), ended)


def proposal_to_row(proposal: Proposal) -> Row:
    """A row of ``proposals``."""
    return {
        "generation": proposal.generation,
        "position": proposal.position,
        "digest": proposal.digest,
        "key": proposal.key,
        "genome": proposal.genome.to_json(),
        "formula": text(proposal.formula),
        "origin": text(proposal.origin),
        "parents": _json(proposal.parents),
        "outcome": proposal.outcome,
        "note": text(proposal.note),
    }


def proposal_from_row(row: Row) -> Proposal:
    """Read a row of ``proposals``."""
    where = f"proposal {row['generation']}.{row['position']}"
    parents = tuple(json.loads(row["parents"]))
    genome = Genome.from_dict(json.loads(row["genome"]), where)
    return Proposal(**{**row, "genome": genome, "parents": parents})


def evaluation_to_row(evaluation: Evaluation) -> Row:
    """The columns of ``evaluations`` that an evaluation fills."""
    row = evaluation.to_dict()
    row["objectives"] = _json(row["objectives"])
    row["curve"] = _json(row["curve"])
    row["worker"] = text(evaluation.worker)
    row["error"] = None if evaluation.error is None else text(evaluation.error)
    row["execution"] = text(evaluation.execution)
    return row


def evaluation_from_row(row: Row) -> Evaluation:
    """Read a row of ``evaluations``."""
    data = {name: value for name, value in row.items() if name not in {"key", "repeat", "recorded"}}
    data["objectives"] = json.loads(row["objectives"])
    data["curve"] = json.loads(row["curve"])
    return Evaluation.from_dict(data)


def outcome_from_row(row: Row) -> tuple[str, bool, dict[str, float]]:
    """Read key, status and objectives of a row of ``evaluations``."""
    objectives = {name: float(value) for name, value in json.loads(row["objectives"]).items()}
    return row["key"], row["status"] == "ok", objectives


def generation_to_row(generation: Generation) -> Row:
    """A row of ``generations``."""
    return {
        "number": generation.number,
        "started": from_datetime(generation.started),
        "finished": from_datetime(generation.finished),
        "hypervolume": generation.hypervolume,
        "best_accuracy": generation.best_accuracy,
        "front": _json(generation.front),
        **{name: getattr(generation.counts, name) for name in COUNTS},
    }


def generation_from_row(row: Row) -> Generation:
    """Read a row of ``generations``."""
    return Generation(
        number=row["number"],
        started=to_datetime(row["started"]),
        finished=to_datetime(row["finished"]),
        hypervolume=row["hypervolume"],
        best_accuracy=row["best_accuracy"],
        counts=Counts(**{name: row[name] for name in COUNTS}),
        front=tuple(json.loads(row["front"])),
    )


def text(value: str) -> str:
    """UTF-8 can hold it: a command line or an error text may carry bytes that are no characters."""
    return value.encode("utf-8", "backslashreplace").decode()


def from_datetime(moment: datetime) -> str:
    """An aware time as text that sorts."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def to_datetime(moment: str) -> datetime:
    """What ``from_datetime`` wrote."""
    return datetime.fromisoformat(moment)


def _objective_to_dict(objective: Objective) -> Mapping[str, str]:
    return {name: getattr(objective, name) for name in ("name", "direction", "unit", "about")}


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)
