"""Read a run: its setup, sessions, proposals, trainings, candidates and generations.

Reading changes nothing and never waits for the writer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, get_args

from nas.common.errors import NasError, RunError
from nas.common.objectives import Objective, as_costs
from nas.common.pareto import hypervolume, non_dominated, normalise
from nas.evaluation.trial import RETRIED, Incident, Purpose, Training
from nas.store import lock, rows
from nas.store.database import Database
from nas.store.records import Candidate, Counts, RunStatus, RunSummary

if TYPE_CHECKING:
    from nas.store.records import Estimate, Generation, PastSession, Proposal, RunSetup

DATABASE_FILE: Final = "run.sqlite"

Command: TypeAlias = Literal["explain", "benchmark"]

T = TypeVar("T")
R = TypeVar("R")


class Run(AbstractContextManager["Run"]):
    """A reader of a run's records. Close it, or use it as a context."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder
        self._database = database

    @property
    def name(self) -> str:
        """The folder's present name, since runs may be moved and renamed."""
        return self.folder.resolve().name

    @property
    def setup(self) -> RunSetup:
        """The setup that the run was begun with."""
        return self._read(rows.setup_from_row, self._row())

    @property
    def status(self) -> RunStatus:
        """The status; "stopped" if the recorded one is "running" but no process writes the run."""
        status = self._read(_status, self._row()["status"])
        if status == "running" and not lock.is_held(self.folder):
            return "stopped"
        return status

    @property
    def note(self) -> str:
        """The reason of an early end; empty if there is none."""
        return str(self._row()["note"])

    @property
    def started(self) -> datetime:
        """When the run was begun."""
        return self._read(rows.to_datetime, self._row()["started"])

    @property
    def is_exhausted(self) -> bool:
        """Whether the space is exhausted: the last attempts gave no new mechanism."""
        last = self._database.query(
            "SELECT verdict FROM proposals ORDER BY number DESC, attempt DESC LIMIT 1"
        )
        return bool(last) and last[0]["verdict"] not in {"new", "repeated"}

    def sessions(self) -> tuple[PastSession, ...]:
        """The processes that wrote the run, in order."""
        return self._all(rows.session_from_row, "SELECT * FROM sessions ORDER BY id")

    def proposals(self) -> tuple[Proposal, ...]:
        """All attempts in order."""
        statement = "SELECT * FROM proposals ORDER BY number, attempt"
        return self._all(rows.proposal_from_row, statement)

    def proposal(self, digest: str) -> Proposal | None:
        """The proposal of a genome that was trained, else the first."""
        proposals = self._all(
            rows.proposal_from_row,
            "SELECT * FROM proposals WHERE digest = :digest "
            "ORDER BY verdict != 'new', number, attempt LIMIT 1",
            digest=digest,
        )
        return proposals[0] if proposals else None

    def new_proposals(self, keys: Iterable[str]) -> dict[str, Proposal]:
        """The trained proposal of each of these mechanisms, by key, in one query."""
        proposals = self._all(
            rows.proposal_from_row,
            "SELECT * FROM proposals WHERE verdict = 'new' "
            "AND key IN (SELECT value FROM json_each(:keys))",
            keys=json.dumps([*keys]),
        )
        return {str(proposal.key): proposal for proposal in proposals}

    def digests(self) -> tuple[str, ...]:
        """All digests proposed, each once, sorted."""
        records = self._database.query("SELECT DISTINCT digest FROM proposals ORDER BY digest")
        return tuple(row["digest"] for row in records)

    def trainings(
        self, purpose: Purpose = "search", *, key: str | None = None, last: int | None = None
    ) -> tuple[Training, ...]:
        """Recorded trainings of a purpose, by stage, task, key and repeat.

        Args:
            key: restricts the trainings to one mechanism.
            last: restricts them to the most recent ones, in the order in which they ended.
        """
        order = "stage, task, key, repeat, seed" if last is None else "recorded DESC"
        trainings = self._all(
            rows.training_from_row,
            "SELECT * FROM trainings WHERE purpose = :purpose AND (:key IS NULL OR key = :key) "  # noqa: S608
            f"ORDER BY {order} LIMIT :last",
            purpose=purpose,
            key=key,
            last=-1 if last is None else last,
        )
        return trainings if last is None else trainings[::-1]

    def num_trainings(self) -> int:
        """The number of finished trainings of the search, without failures that are retried."""
        statement = (
            "SELECT count(*) AS ended FROM trainings WHERE purpose = 'search' "
            "AND ifnull(reason, '') NOT IN (SELECT value FROM json_each(:retried))"
        )
        retried = json.dumps(sorted(RETRIED))
        return int(self._database.query(statement, retried=retried)[0]["ended"])

    def candidates(
        self, keys: Iterable[str] | None = None, proposals: Iterable[Proposal] | None = None
    ) -> tuple[Candidate, ...]:
        """Every mechanism that the search proposed to train, in order of proposal.

        Args:
            keys: restricts the candidates to these mechanisms; no other records are read.
            proposals: all proposals, if they have been read before.
        """
        with self.snapshot():
            setup, estimates = self.setup, {e.key: e for e in self.estimates()}
            values = {"keys": None if keys is None else json.dumps([*keys])}
            chosen = "(:keys IS NULL OR key IN (SELECT value FROM json_each(:keys)))"
            if proposals is None:
                proposals = self._all(
                    rows.proposal_from_row,
                    f"SELECT * FROM proposals WHERE verdict = 'new' AND {chosen} ORDER BY number",  # noqa: S608
                    **values,
                )
            trainings = self._all(
                rows.training_from_row,
                f"SELECT * FROM trainings WHERE purpose = 'search' AND {chosen} "  # noqa: S608
                "ORDER BY key, repeat",
                **values,
            )
        new = [proposal for proposal in proposals if proposal.is_new]
        return self._read(partial(_join, setup, new, trainings), estimates)

    def front(self, candidates: Sequence[Candidate] | None = None) -> tuple[Candidate, ...]:
        """The non-dominated candidates, best first objective first, then in order of proposal.

        Compares estimates of the last generation, or scores before the first.

        Args:
            candidates: all candidates, if they have been read before.
        """
        with self.snapshot():
            objectives = self.setup.objectives
            if candidates is None:
                estimates = self.estimates()
                read = partial(self._members, objectives)
                candidates = self.candidates(self._read(read, estimates) if estimates else None)
            elif estimated := [candidate for candidate in candidates if candidate.estimate]:
                candidates = estimated
            members = [candidate for candidate in candidates if candidate.is_ok]
        costs = [as_costs(objectives, member.objectives) for member in members]
        ranked = sorted(non_dominated(costs), key=lambda i: (costs[i], members[i].proposal.number))
        return tuple(members[i] for i in ranked)

    def _members(self, objectives: Sequence[Objective], estimates: Sequence[Estimate]) -> list[str]:
        """Keys of non-dominated estimates of mechanisms with a result."""
        complete = {
            row["key"]
            for row in self._database.query(
                "SELECT key FROM trainings WHERE purpose = 'search' GROUP BY key "
                "HAVING count(*) >= (SELECT repeats FROM run) AND min(status = 'ok')"
            )
        }
        estimates = [estimate for estimate in estimates if estimate.key in complete]
        costs = [as_costs(objectives, estimate.means) for estimate in estimates]
        return [estimates[i].key for i in non_dominated(costs)]

    def answers(self, command: Command) -> tuple[dict[str, Any], ...]:
        """The JSON answers of ``nas explain`` or ``nas benchmark`` on mechanisms of this run."""
        statement = "SELECT answer FROM answers WHERE command = :command ORDER BY question"
        return self._all(_answer, statement, command=command)

    def estimates(self) -> tuple[Estimate, ...]:
        """Estimates of all mechanisms after the last generation."""
        records = self._database.query(
            "SELECT * FROM estimates WHERE generation = (SELECT max(number) FROM generations) "
            "ORDER BY key"
        )
        self._read(lambda records: rows.parse(records, "means", "errors"), records)
        return tuple(self._read(rows.estimate_from_row, row) for row in records)

    def incidents(self) -> tuple[Incident, ...]:
        """Failures of workers, in order."""
        return self._all(rows.incident_from_row, "SELECT * FROM incidents ORDER BY id")

    def generations(self) -> tuple[Generation, ...]:
        """The generations that are complete, in order."""
        with self.snapshot():
            records = self._database.query("SELECT * FROM generations ORDER BY number")
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
            return tuple(self._read(read, row) for row in records)

    def counts(self) -> Counts:
        """Numbers of all proposals so far, by outcome."""
        return sum(self._counts_by_generation().values(), start=Counts())

    def _counts_by_generation(self) -> dict[int, Counts]:
        records = self._database.query(
            "WITH ended AS (SELECT key, count(*) AS trainings, max(status = 'failed') AS failed, "
            "max(status = 'stopped') AS stopped "
            "FROM trainings WHERE purpose = 'search' GROUP BY key) "
            "SELECT number / (SELECT population FROM run) AS generation, count(*) AS proposed, "
            "sum(verdict = 'new' AND ifnull(trainings, 0) >= (SELECT repeats FROM run)) "
            "AS evaluated, sum(verdict = 'repeated') AS repeated, "
            "sum(verdict = 'replayed') AS replayed, sum(verdict = 'rejected') AS rejected, "
            "sum(verdict = 'new' AND ifnull(failed, 0)) AS failed, "
            "sum(verdict = 'new' AND ifnull(stopped, 0)) AS stopped "
            "FROM proposals LEFT JOIN ended USING (key) GROUP BY 1"
        )
        return {row.pop("generation"): Counts(**row) for row in records}

    def summary(self) -> RunSummary:
        """A summary of the run; best and hypervolume cover all results so far."""
        with self.snapshot():
            setup, sessions = self.setup, self.sessions()
            members = [member.objectives for member in self.front()]
            return RunSummary(
                name=self.name,
                folder=self.folder,
                status=self.status,
                space=setup.space.name,
                task=setup.task.name,
                algorithm=setup.config.algorithm,
                seed=setup.config.seed,
                started=self.started,
                active=sessions[-1].started if sessions else self.started,
                generations_done=len(self.generations()),
                generations=setup.config.generations,
                counts=self.counts(),
                objective=setup.objectives[0],
                best=members[0][setup.objectives[0].name] if members else None,
                hypervolume=scaled_hypervolume(setup.objectives, members) if members else None,
            )

    def integrity(self) -> str:
        """The first fault of the file that SQLite reports, including indices, or ``ok``."""
        return str(self._database.query("PRAGMA integrity_check(1)")[0]["integrity_check"])

    def snapshot(self) -> AbstractContextManager[None]:
        """A context in which all reads see one state of the database."""
        return self._database.snapshot()

    def close(self) -> None:
        """Close the file; idempotent."""
        self._database.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _row(self) -> dict[str, Any]:
        records = self._database.query("SELECT * FROM run")
        if not records:
            raise RunError(
                f"{self.folder}: holds no run; begin a new one with `nas search`, or copy what "
                f"lay beside {DATABASE_FILE} too."
            )
        return records[0]

    def _all(self, reader: Callable[[rows.Row], T], sql: str, **values: Any) -> tuple[T, ...]:
        return tuple(self._read(reader, row) for row in self._database.query(sql, **values))

    def _read(self, reader: Callable[[R], T], row: R) -> T:
        """Apply a reader; raises RunError if it fails, since the file is damaged then."""
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
    """Open a run for reading, also while another process writes it.

    Raises:
        RunError: there is no run, or its database is damaged, foreign or of another schema.
    """
    return Run(folder, Database.open_to_read(database_file(folder)))


def database_file(folder: Path) -> Path:
    """The path of a run's database; raises RunError if there is none."""
    path = folder / DATABASE_FILE
    if not path.is_file():
        raise RunError(f"{folder}: is no run folder; expected one that holds {DATABASE_FILE}.")
    return path


def scaled_hypervolume(
    objectives: Sequence[Objective], members: Sequence[Mapping[str, float]]
) -> float:
    """Fraction of the box between the objectives' ideals and references that members dominate."""
    ideal = [o.as_cost(o.ideal) for o in objectives]
    reference = [o.as_cost(o.reference) for o in objectives]
    scaled = normalise([as_costs(objectives, row) for row in members], ideal, reference)
    return hypervolume(scaled, (1.0,) * len(objectives))


def _join(
    setup: RunSetup,
    proposals: Sequence[Proposal],
    trainings: Sequence[Training],
    estimates: Mapping[str, Estimate],
) -> tuple[Candidate, ...]:
    """Candidates of new proposals; raises ValueError if the records are inconsistent."""
    by_key: dict[str, list[Training]] = {str(proposal.key): [] for proposal in proposals}
    for training in trainings:
        if training.key not in by_key:
            raise ValueError(f"a training of {training.key}, which was never proposed")
        by_key[training.key].append(training)
    names = {objective.name for objective in setup.objectives}
    candidates = []
    for proposal in proposals:
        key = str(proposal.key)
        repeats = setup.config.repeats
        candidate = Candidate(proposal, tuple(by_key[key]), estimates.get(key), repeats)
        if candidate.is_ok and (missing := names - candidate.objectives.keys()):
            raise ValueError(f"{candidate.digest} lacks {sorted(missing)}")
        candidates.append(candidate)
    return tuple(candidates)


def _answer(row: rows.Row) -> dict[str, Any]:
    answer = json.loads(row["answer"])
    if not isinstance(answer, dict):
        raise ValueError("an answer is no JSON object")
    return answer


def _status(text: str) -> RunStatus:
    return get_args(RunStatus)[get_args(RunStatus).index(text)]  # type: ignore[no-any-return]
