"""Read a run: its setup, sessions, proposals, trainings, candidates and generations.

Reading changes nothing and never waits for the process that writes the run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, get_args

from nas.common.errors import NasError, RunError
from nas.common.objectives import front_costs
from nas.common.pareto import non_dominated, scaled_hypervolume
from nas.evaluation.trial import RETRIED, Incident, Purpose, Training
from nas.store import lock, rows
from nas.store.database import Database
from nas.store.records import Candidate, Counts, Generation, RunStatus, RunSummary

if TYPE_CHECKING:
    from nas.store.records import Estimate, PastSession, Proposal, RunSetup

DATABASE_FILE: Final = "run.sqlite"

Command: TypeAlias = Literal["explain"]

# Errors of functions that read a damaged row.
_DAMAGE: Final = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    NasError,
)
T = TypeVar("T")
R = TypeVar("R")


class Run(AbstractContextManager["Run"]):
    """A reader of a run's records. Close it, or use it as a context manager.

    Every method and property that reads the database raises RunError if a record is damaged.
    """

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder
        self._database = database

    @property
    def name(self) -> str:
        """The present name of the folder, since a run may be moved or renamed."""
        return self.folder.resolve().name

    @property
    def setup(self) -> RunSetup:
        """What was recorded when the run began: settings, space, task, objectives."""
        return self._read(rows.setup_from_row, self._row())

    @property
    def status(self) -> RunStatus:
        """The recorded status; "stopped" if it is "running" but no process writes the run."""
        status = self._row()["status"]
        if status not in get_args(RunStatus):
            raise self._damaged(ValueError(f"the status {status!r}"))
        if status == "running" and not lock.is_held(self.folder):
            return "stopped"
        return status  # type: ignore[no-any-return]

    @property
    def note(self) -> str:
        """Why the run ended early, or the error with which it stopped; otherwise empty."""
        return str(self._row()["note"])

    @property
    def started(self) -> datetime:
        """The time at which the run began."""
        return self._read(rows.to_datetime, self._row()["started"])

    @property
    def is_exhausted(self) -> bool:
        """Whether the search ended because none of its last attempts gave a new mechanism."""
        last = self._database.query(
            "SELECT verdict FROM proposals ORDER BY number DESC, attempt DESC LIMIT 1"
        )
        return bool(last) and last[0]["verdict"] not in {"new", "repeated"}

    def sessions(self) -> tuple[PastSession, ...]:
        """Return the processes that began or resumed the run, in order."""
        return self._all(rows.session_from_row, "SELECT * FROM sessions ORDER BY id")

    def proposals(self) -> tuple[Proposal, ...]:
        """Return all proposals, sorted by number and attempt."""
        statement = "SELECT * FROM proposals ORDER BY number, attempt"
        return self._all(rows.proposal_from_row, statement)

    def proposal(self, digest: str) -> Proposal | None:
        """Return the first proposal of a genome; None if the run has not proposed the genome.

        A proposal with the verdict "new" takes precedence over all other proposals of the genome.

        Args:
            digest: complete digest of the genome in normal form.
        """
        proposals = self._all(
            rows.proposal_from_row,
            "SELECT * FROM proposals WHERE digest = :digest "
            "ORDER BY verdict != 'new', number, attempt LIMIT 1",
            digest=digest,
        )
        return proposals[0] if proposals else None

    def new_proposals(self, keys: Iterable[str]) -> dict[str, Proposal]:
        """Return the proposal with which each mechanism was trained first, by key."""
        proposals = self._all(
            rows.proposal_from_row,
            "SELECT * FROM proposals WHERE verdict = 'new' "
            "AND key IN (SELECT value FROM json_each(:keys))",
            keys=json.dumps([*keys]),
        )
        return {str(proposal.key): proposal for proposal in proposals}

    def digests(self) -> tuple[str, ...]:
        """Return the digests of all proposed genomes, each once, sorted."""
        records = self._database.query("SELECT DISTINCT digest FROM proposals ORDER BY digest")
        return tuple(row["digest"] for row in records)

    def trainings(
        self, purpose: Purpose = "search", *, key: str | None = None, last: int | None = None
    ) -> tuple[Training, ...]:
        """Return the recorded trainings that served a purpose, sorted by stage, task, key, repeat.

        Args:
            key: if given, only trainings of the mechanism with this key.
            last: if given, only this number of most recent trainings, sorted by their end.
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
        """Return the number of finished trainings of the search.

        Failures that a resumed search trains again do not count.
        """
        statement = (
            "SELECT count(*) AS ended FROM trainings WHERE purpose IN ('search', 'target') "
            "AND ifnull(reason, '') NOT IN (SELECT value FROM json_each(:retried))"
        )
        retried = json.dumps(sorted(RETRIED))
        return int(self._database.query(statement, retried=retried)[0]["ended"])

    def candidates(
        self, keys: Iterable[str] | None = None, proposals: Iterable[Proposal] | None = None
    ) -> tuple[Candidate, ...]:
        """Return all mechanisms that the search proposed to train, in the order of the proposals.

        Args:
            keys: if given, only the mechanisms with these keys. No other records are read.
            proposals: all proposals of the run, if the caller has read them already.
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
                f"SELECT * FROM trainings WHERE purpose IN ('search', 'target') AND {chosen} "  # noqa: S608
                "ORDER BY key, repeat",
                **values,
            )
        new = [proposal for proposal in proposals if proposal.is_new]
        return self._read(lambda _: _join(setup, new, trainings, estimates), None)

    def front(self, candidates: Sequence[Candidate] | None = None) -> tuple[Candidate, ...]:
        """Return the non-dominated mechanisms, sorted from best to worst in the first objective.

        Mechanisms are compared by their estimates after the last generation; before the first has
        ended, by their mean metrics. A mechanism with a failed or missing training is never in the
        front, since the seeds that succeeded are a biased selection.

        Args:
            candidates: all candidates of the run, if the caller has read them already.
        """
        with self.snapshot():
            objectives = self.setup.objectives
            if candidates is None:
                estimates = self.estimates()
                candidates = self.candidates(self._front_keys(estimates) if estimates else None)
            elif estimated := [candidate for candidate in candidates if candidate.estimate]:
                candidates = estimated
            members = [candidate for candidate in candidates if candidate.is_ok]
        costs = [front_costs(objectives, member.objectives) for member in members]
        ranked = sorted(non_dominated(costs), key=lambda i: (costs[i], members[i].proposal.number))
        return tuple(members[i] for i in ranked)

    def _front_keys(self, estimates: Sequence[Estimate]) -> list[str]:
        """Return the keys of the mechanisms whose estimates are non-dominated.

        Mechanisms with a failed or missing training are left out before the comparison.
        """
        statement = (
            "SELECT key FROM trainings WHERE purpose IN ('search', 'target') GROUP BY key "
            "HAVING count(*) >= (SELECT repeats FROM run) AND min(status = 'ok')"
        )
        complete = {row["key"] for row in self._database.query(statement)}
        estimates = [estimate for estimate in estimates if estimate.key in complete]
        objectives = self.setup.objectives
        costs = self._read(lambda es: [front_costs(objectives, e.means) for e in es], estimates)
        return [estimates[i].key for i in non_dominated(costs)]

    def hypervolume(self, members: Sequence[Candidate]) -> float:
        """Return the hypervolume that some candidates dominate, as a fraction from 0 to 1."""
        return scaled_hypervolume(self.setup.objectives, [c.objectives for c in members])

    def answers(self, command: Command) -> tuple[dict[str, Any], ...]:
        """Return the JSON results of ``nas explain`` that the run recorded."""
        statement = "SELECT answer FROM answers WHERE command = :command ORDER BY question"
        answers = self._all(lambda row: json.loads(row["answer"]), statement, command=command)
        if not all(isinstance(answer, dict) for answer in answers):
            raise self._damaged(ValueError("an answer is no JSON object"))
        return answers

    def estimates(self) -> tuple[Estimate, ...]:
        """Return the estimates of all mechanisms after the last generation, sorted by key."""
        return self._all(
            rows.estimate_from_row,
            "SELECT * FROM estimates WHERE generation = (SELECT max(number) FROM generations) "
            "ORDER BY key",
        )

    def incidents(self) -> tuple[Incident, ...]:
        """Return the recorded failures of workers, in order."""
        return self._all(rows.incident_from_row, "SELECT * FROM incidents ORDER BY id")

    def generations(self, first: int = 0) -> tuple[Generation, ...]:
        """Return the complete generations from index ``first`` on, in order."""
        fronts: dict[int, list[tuple[float, int, str]]] = defaultdict(list)

        def add_member(row: rows.Row) -> None:
            cost = objective.as_cost(rows.numbers(row["means"])[objective.name])
            fronts[row["generation"]].append((cost, row["number"], row["digest"]))

        def read(row: rows.Row) -> Generation:
            number, best = row["number"], row["best"]
            return Generation(
                number=number,
                finished=rows.to_datetime(row["finished"]),
                hypervolume=rows.finite(row["hypervolume"]),
                best=None if best is None else rows.finite(best),
                counts=counts[number],
                front=tuple(digest for *_, digest in sorted(fronts[number])),
            )

        with self.snapshot():
            counts, objective = self._counts_by_generation(first), self.setup.objectives[0]
            self._all(
                add_member,
                "SELECT e.generation, e.means, p.number, p.digest FROM estimates AS e "
                "JOIN proposals AS p ON p.key = e.key AND p.verdict = 'new' "
                "WHERE e.is_member AND e.generation >= :first",
                first=first,
            )
            statement = "SELECT * FROM generations WHERE number >= :first ORDER BY number"
            return self._all(read, statement, first=first)

    def counts(self) -> Counts:
        """Return the numbers of all proposals so far, by outcome."""
        return sum(self._counts_by_generation().values(), start=Counts())

    def _counts_by_generation(self, first: int = 0) -> dict[int, Counts]:
        records = self._database.query(
            "WITH chosen AS (SELECT number, key, verdict FROM proposals "
            "WHERE number >= :first * (SELECT population FROM run)), "
            "ended AS (SELECT key, count(*) AS trainings, max(status = 'failed') AS failed, "
            "max(status = 'stopped') AS stopped FROM trainings "
            "WHERE purpose = 'search' AND key IN (SELECT key FROM chosen) GROUP BY key) "
            "SELECT number / (SELECT population FROM run) AS generation, count(*) AS proposed, "
            "sum(verdict = 'new' AND ifnull(trainings, 0) >= (SELECT repeats FROM run)) "
            "AS evaluated, sum(verdict = 'repeated') AS repeated, "
            "sum(verdict = 'replayed') AS replayed, sum(verdict = 'rejected') AS rejected, "
            "sum(verdict = 'new' AND ifnull(failed, 0)) AS failed, "
            "sum(verdict = 'new' AND ifnull(stopped, 0)) AS stopped "
            "FROM chosen LEFT JOIN ended USING (key) GROUP BY 1",
            first=first,
        )
        return {row.pop("generation"): Counts(**row) for row in records}

    def summary(self) -> RunSummary:
        """Return a summary of the run with the best value and hypervolume of all results."""
        with self.snapshot():
            setup, sessions, members = self.setup, self.sessions(), self.front()
            return RunSummary(
                name=self.name,
                folder=self.folder,
                status=self.status,
                note=self.note,
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
                best=members[0].objectives[setup.objectives[0].name] if members else None,
                hypervolume=self.hypervolume(members) if members else None,
            )

    def integrity(self) -> str:
        """Return the first fault that SQLite finds in the database and its indices, or "ok"."""
        return str(self._database.query("PRAGMA integrity_check(1)")[0]["integrity_check"])

    def snapshot(self) -> AbstractContextManager[None]:
        """Return a context manager in which all reads see the same state of the database."""
        return self._database.snapshot()

    def close(self) -> None:
        """Close the database. A second call does nothing."""
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
        try:
            return reader(row)
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> RunError:
        return RunError(
            f"{self.folder / DATABASE_FILE}: holds a record that cannot be read "
            f"({type(error).__name__}: {error}). Restore it from a copy."
        )


def open_run(folder: Path) -> Run:
    """Open a run for reading, also while another process writes it.

    Raises:
        RunError: there is no run, or its database is damaged, was not written by nas, or has
            another schema.
    """
    return Run(folder, Database.open_to_read(database_file(folder)))


def database_file(folder: Path) -> Path:
    """Return the path of a run's database; raise RunError if the folder holds none."""
    path = folder / DATABASE_FILE
    if not path.is_file():
        raise RunError(f"{folder}: is no run folder; expected one that holds {DATABASE_FILE}.")
    return path


def _join(
    setup: RunSetup,
    proposals: Sequence[Proposal],
    trainings: Sequence[Training],
    estimates: Mapping[str, Estimate],
) -> tuple[Candidate, ...]:
    """Return what was recorded about each new mechanism: proposal, trainings and estimate.

    Raises:
        ValueError: records contradict each other.
    """
    by_key: dict[str, list[Training]] = {str(proposal.key): [] for proposal in proposals}
    if len({proposal.digest for proposal in proposals}) < len(proposals):
        raise ValueError("two mechanisms with the same digest")
    for training in trainings:
        if training.key not in by_key:
            raise ValueError(f"a training of {training.key}, which was never proposed")
        by_key[training.key].append(training)
    names = {objective.name for objective in setup.objectives}
    candidates = []
    for proposal in proposals:
        key = str(proposal.key)
        short = tuple(t for t in by_key[key] if t.purpose == "search")
        target = tuple(t for t in by_key[key] if t.purpose == "target")
        candidate = Candidate(
            proposal,
            short,
            estimates.get(key),
            setup.config.repeats,
            None if setup.target is None else target,
        )
        if candidate.is_ok and (missing := names - candidate.objectives.keys()):
            raise ValueError(f"{candidate.digest} lacks {sorted(missing)}")
        candidates.append(candidate)
    return tuple(candidates)
