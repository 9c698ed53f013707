"""A run, opened to read: its setup, sessions, proposals, evaluations, results and generations.

Reading changes nothing and never waits for the process that writes. Candidates, front and lineage
are in ``nas.store.front``.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, get_args

from nas.common.errors import NasError, RunError
from nas.store import lock, rows
from nas.store.database import Database
from nas.store.records import Counts, RunStatus, RunSummary
from nas.store.results import Result, front_of, result_of, scaled_hypervolume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime
    from pathlib import Path

    from nas.evaluation.trial import Evaluation, Incident
    from nas.store.records import (
        Confirmation,
        Estimate,
        Generation,
        PastSession,
        PastTraining,
        Proposal,
        RunSetup,
    )

DATABASE_FILE: Final = "run.sqlite"

Table: TypeAlias = Literal["proposals", "trials"]

T = TypeVar("T")
R = TypeVar("R")


class Run(AbstractContextManager["Run"]):
    """A run's records. Close it, or use it as a context."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder
        self._database = database

    @property
    def name(self) -> str:
        """The folder's name: a run may be moved and renamed."""
        return self.folder.resolve().name

    @property
    def setup(self) -> RunSetup:
        """What the run was begun with."""
        return self._read(rows.setup_from_row, self._row())

    @property
    def status(self) -> RunStatus:
        """How the run stands; one that was killed is "stopped", whatever it wrote last."""
        status = self._read(_status, self._row()["status"])
        if status == "running" and not lock.is_held(self.folder):
            return "stopped"
        return status

    @property
    def note(self) -> str:
        """Why the run ended as it did, where there is more to say than "finished"."""
        return str(self._row()["note"])

    @property
    def started(self) -> datetime:
        """When the run was begun."""
        return self._read(rows.to_datetime, self._row()["started"])

    @property
    def is_exhausted(self) -> bool:
        """Whether the last attempts in a row gave no new mechanism, so that the search gave up."""
        last = self._database.query(
            "SELECT verdict FROM proposals ORDER BY number DESC, attempt DESC LIMIT 1"
        )
        return bool(last) and last[0]["verdict"] not in {"new", "repeated"}

    def sessions(self) -> tuple[PastSession, ...]:
        """The processes that wrote the run, in order; none if one was killed before it began."""
        return self._all(rows.session_from_row, "SELECT * FROM sessions ORDER BY id")

    def proposals(self) -> tuple[Proposal, ...]:
        """All attempts in order."""
        statement = "SELECT * FROM proposals ORDER BY number, attempt"
        return self._all(rows.proposal_from_row, statement)

    def proposal(self, digest: str) -> Proposal | None:
        """Of a genome the proposal that was trained, else the first."""
        found = self._all(
            rows.proposal_from_row,
            "SELECT * FROM proposals WHERE digest = :digest "
            "ORDER BY verdict != 'new', number, attempt LIMIT 1",
            digest=digest,
        )
        return found[0] if found else None

    def new_proposals(self, keys: Iterable[str]) -> dict[str, Proposal]:
        """The trained proposal of each of these mechanisms, by key, in one query."""
        found = self._all(
            rows.proposal_from_row,
            "SELECT * FROM proposals WHERE verdict = 'new' "
            "AND key IN (SELECT value FROM json_each(:keys))",
            keys=json.dumps([*keys]),
        )
        return {str(one.key): one for one in found}

    def digests(self) -> tuple[str, ...]:
        """All digests proposed, each once, sorted."""
        found = self._database.query("SELECT DISTINCT digest FROM proposals ORDER BY digest")
        return tuple(row["digest"] for row in found)

    def evaluation(self, key: str, repeat: int = 0) -> Evaluation | None:
        """What was recorded for one training, or None."""
        statement = "SELECT * FROM trials WHERE key = :key AND repeat = :repeat"
        found = self._all(rows.evaluation_from_row, statement, key=key, repeat=repeat)
        return found[0] if found else None

    def evaluations(self) -> dict[tuple[str, int], Evaluation]:
        """Every training that ended, by resolved digest and repeat, both ascending."""
        rows_found = self._database.query("SELECT * FROM trials ORDER BY key, repeat")
        read = partial(self._read, rows.evaluation_from_row)
        return {(row["key"], row["repeat"]): read(row) for row in rows_found}

    def last_trainings(self, count: int) -> tuple[PastTraining, ...]:
        """The trainings that ended last, the newest last."""
        statement = "SELECT * FROM trials ORDER BY recorded DESC LIMIT :count"
        return self._all(rows.training_from_row, statement, count=count)[::-1]

    def num_trainings(self) -> int:
        """How many trainings have ended, but for those that only a lost worker ended."""
        statement = "SELECT count(*) AS ended FROM trials WHERE reason IS NOT 'worker_lost'"
        return int(self._database.query(statement)[0]["ended"])

    def read_rows(self, table: Table, reader: Callable[[list[rows.Row]], T]) -> T:
        """What a reader makes of a whole table, in order of its key; for who shows all of it."""
        order = {"proposals": "number, attempt", "trials": "key, repeat"}[table]
        return self._read(reader, self._database.query(f"SELECT * FROM {table} ORDER BY {order}"))  # noqa: S608

    def results(self) -> tuple[Result, ...]:
        """What is known of each new proposal, in order; quicker than ``evaluations``."""
        with self.snapshot():
            read = partial(result_of, self.setup, {e.key: e for e in self.estimates()})
            found = self._database.query(
                "SELECT p.number, p.digest, p.key, p.costs, t.status, "
                "ifnull(t.metrics, 'null') AS metrics "
                "FROM proposals AS p LEFT JOIN trials AS t ON t.key = p.key "
                "WHERE p.verdict = 'new' ORDER BY p.number, t.repeat"
            )
        self._parse(found, "costs", "metrics")
        groups = groupby(found, key=lambda row: row["number"])
        return tuple(self._read(read, list(group)) for _, group in groups)

    def estimates(self) -> tuple[Estimate, ...]:
        """What was believed of all mechanisms when the last generation had ended."""
        found = self._database.query(
            "SELECT * FROM estimates WHERE generation = (SELECT max(number) FROM generations) "
            "ORDER BY key"
        )
        self._parse(found, "means", "errors")
        return tuple(self._read(rows.estimate_from_row, row) for row in found)

    def confirmations(self) -> tuple[Confirmation, ...]:
        """Every training that confirms, by part, task, resolved digest and repeat, ascending."""
        statement = "SELECT * FROM confirmations ORDER BY part, task, key, repeat"
        return self._all(rows.confirmation_from_row, statement)

    def incidents(self) -> tuple[Incident, ...]:
        """What befell the machines, in order; no candidate was to blame."""
        if not self._database.query("SELECT 1 FROM sqlite_master WHERE name = 'incidents'"):
            return ()  # an older run
        return self._all(rows.incident_from_row, "SELECT * FROM incidents ORDER BY id")

    def generations(self) -> tuple[Generation, ...]:
        """The generations that are complete, in order."""
        with self.snapshot():
            found = self._database.query("SELECT * FROM generations ORDER BY number")
            counts = self._counts_by_generation()
            name, as_cost = self.setup.objectives[0].name, self.setup.objectives[0].as_cost
            fronts: dict[int, list[tuple[float, int, str]]] = {}
            for row in self._database.query(
                "SELECT e.generation, e.means, p.number, p.digest FROM estimates AS e "
                "JOIN proposals AS p ON p.key = e.key AND p.verdict = 'new' WHERE e.is_member"
            ):
                value = self._read(lambda row: as_cost(rows.numbers(row["means"])[name]), row)
                place = value, row["number"], row["digest"]
                fronts.setdefault(row["generation"], []).append(place)
            read = partial(rows.generation_from_row, counts=counts, fronts=fronts)
            return tuple(self._read(read, row) for row in found)

    def counts(self) -> Counts:
        """What became of all proposals so far."""
        return sum(self._counts_by_generation().values(), start=Counts())

    def _counts_by_generation(self) -> dict[int, Counts]:
        found = self._database.query(
            "WITH ended AS (SELECT key, count(*) AS trainings, max(status = 'failed') AS failed, "
            "max(status = 'stopped') AS stopped "
            "FROM trials GROUP BY key) "
            "SELECT number / (SELECT population FROM run) AS generation, count(*) AS proposed, "
            "sum(verdict = 'new' AND ifnull(trainings, 0) >= (SELECT repeats FROM run)) "
            "AS evaluated, sum(verdict = 'repeated') AS repeated, "
            "sum(verdict = 'replayed') AS replayed, sum(verdict = 'rejected') AS rejected, "
            "sum(verdict = 'new' AND ifnull(failed, 0)) AS failed, "
            "sum(verdict = 'new' AND ifnull(stopped, 0)) AS stopped "
            "FROM proposals LEFT JOIN ended USING (key) GROUP BY 1"
        )
        return {row.pop("generation"): Counts(**row) for row in found}

    def summary(self) -> RunSummary:
        """One line about the run; best and hypervolume are those of all results so far."""
        with self.snapshot():
            setup, sessions = self.setup, self.sessions()
            front = front_of(setup.objectives, self.results())
            members = [found.objectives for found in front if found.objectives is not None]
            return RunSummary(
                name=self.name,
                folder=self.folder,
                status=self.status,
                space=setup.space.name,
                task=setup.task.name,
                algorithm=setup.algorithm,
                seed=setup.seed,
                started=self.started,
                active=sessions[-1].started if sessions else self.started,
                generations_done=len(self.generations()),
                generations=setup.generations,
                counts=self.counts(),
                objective=setup.objectives[0],
                best=members[0][setup.objectives[0].name] if members else None,
                hypervolume=scaled_hypervolume(setup.objectives, members) if members else None,
            )

    def integrity(self) -> str:
        """What SQLite finds wrong with the file, indices included; ``ok`` where that is nothing."""
        return str(self._database.query("PRAGMA integrity_check(1)")[0]["integrity_check"])

    def snapshot(self) -> AbstractContextManager[None]:
        """All that is read inside is of one moment."""
        return self._database.snapshot()

    def close(self) -> None:
        """Let go of the file; calling it again does nothing."""
        self._database.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _row(self) -> dict[str, Any]:
        found = self._database.query("SELECT * FROM run")
        if not found:
            raise RunError(
                f"{self.folder}: holds no run; begin a new one with `nas search`, or copy what "
                f"lay beside {DATABASE_FILE} too."
            )
        return found[0]

    def _all(self, reader: Callable[[rows.Row], T], sql: str, **values: Any) -> tuple[T, ...]:
        return tuple(self._read(reader, row) for row in self._database.query(sql, **values))

    def _parse(self, found: list[rows.Row], *names: str) -> None:
        self._read(lambda read: rows.parse(read, *names), found)

    def _read(self, reader: Callable[[R], T], row: R) -> T:
        """A row that cannot be read is a damaged file, not a fault of ours."""
        try:
            return reader(row)
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
            NasError,
        ) as error:
            raise RunError(
                f"{self.folder / DATABASE_FILE}: holds a record that cannot be read "
                f"({type(error).__name__}: {error}). Restore it from a copy."
            ) from error


def open_run(folder: Path) -> Run:
    """Open a run to read, also while another process writes it.

    Raises:
        RunError: there is no run, or its database is damaged, foreign or of a later nas.
    """
    return Run(folder, Database.open_to_read(database_file(folder)))


def database_file(folder: Path) -> Path:
    """A run's database; RunError where there is none."""
    path = folder / DATABASE_FILE
    if not path.is_file():
        raise RunError(f"{folder}: is no run folder; expected one that holds {DATABASE_FILE}.")
    return path


def _status(found: str) -> RunStatus:
    return get_args(RunStatus)[get_args(RunStatus).index(found)]  # type: ignore[no-any-return]
