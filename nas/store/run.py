"""Read a run: its setup, sessions, proposals, trainings, candidates and generations.

Reading changes no record and never waits for the process that writes the run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from nas.common.errors import NasError, RunError
from nas.common.objectives import front_costs
from nas.common.pareto import non_dominated, scaled_hypervolume
from nas.evaluation.trial import RETRIED_ON_RESUME, Incident, Purpose, Training
from nas.store import lock
from nas.store.database import Database
from nas.store.records import (
    Candidate,
    Counts,
    Estimate,
    Generation,
    PastSession,
    Proposal,
    RunSetup,
    RunStatus,
    RunSummary,
    from_json,
)

DATABASE_FILE: Final = "run.sqlite"
SEARCHED: Final[tuple[Purpose, ...]] = ("search", "target")  # trainings of a search's candidates
_IN_KEYS: Final = "(:keys IS NULL OR key IN (SELECT value FROM json_each(:keys)))"

T = TypeVar("T")


class Run(AbstractContextManager["Run"]):
    """A reader of a run's records. Close it, or use it as a context manager.

    Every method and property that reads the database raises RunError if a record is damaged.
    """

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder
        self.database = database

    @property
    def name(self) -> str:
        """The present name of the folder, since a run may be moved or renamed."""
        return self.folder.resolve().name

    @property
    def setup(self) -> RunSetup:
        """What was recorded when the run began: settings, space, task, objectives."""
        setup: RunSetup = self._checked(from_json, RunSetup, self._row()["record"])
        return setup

    @property
    def status(self) -> RunStatus:
        """The recorded status, but "stopped" if the process that wrote the run was killed."""
        status: RunStatus = self._row()["status"]
        return "stopped" if status == "running" and not lock.is_held(self.folder) else status

    @property
    def note(self) -> str:
        """Why the run ended early, or the error with which it stopped."""
        return str(self._row()["note"])

    @property
    def started(self) -> datetime:
        """When the run began."""
        started: datetime = self._checked(datetime.fromisoformat, self._row()["started"])
        return started

    @property
    def is_exhausted(self) -> bool:
        """Whether the search ended because none of its last attempts gave a new mechanism."""
        last = self.database.query(
            "SELECT verdict FROM proposals ORDER BY number DESC, attempt DESC LIMIT 1"
        )
        return bool(last) and last[0]["verdict"] not in {"new", "repeated"}

    def sessions(self) -> tuple[PastSession, ...]:
        """Return the processes that began or resumed the run, in order."""
        return self._records(PastSession, "sessions ORDER BY id")

    def proposals(self) -> tuple[Proposal, ...]:
        """Return all proposals, sorted by number and attempt."""
        return self._records(Proposal, "proposals ORDER BY number, attempt")

    def proposal(self, digest: str) -> Proposal | None:
        """Return the first proposal of a genome, preferably one with the verdict "new".

        None is returned if the run has no proposal with this complete digest.
        """
        order = "ORDER BY verdict != 'new', number, attempt LIMIT 1"
        source = f"proposals WHERE digest = :digest {order}"
        return next(iter(self._records(Proposal, source, digest=digest)), None)

    def new_proposals(self, keys: Iterable[str] | None = None) -> dict[str, Proposal]:
        """Return the proposal with which each mechanism, or each of ``keys``, was trained first."""
        source = f"proposals WHERE verdict = 'new' AND {_IN_KEYS} ORDER BY number"
        proposals = self._records(Proposal, source, keys=keys)
        return {str(proposal.key): proposal for proposal in proposals}

    def digests(self) -> tuple[str, ...]:
        """Return the digests of all proposed genomes, each once, sorted."""
        records = self.database.query("SELECT DISTINCT digest FROM proposals ORDER BY digest")
        return tuple(row["digest"] for row in records)

    def trainings(
        self, *purposes: Purpose, keys: Iterable[str] | None = None
    ) -> tuple[Training, ...]:
        """Return the trainings of all mechanisms, or of ``keys``, that served a purpose.

        By default these are the trainings of the search's candidates, under its task and its target
        task. They are sorted by purpose, stage, task, key and repeat.
        """
        return self._records(
            Training,
            "trainings WHERE purpose IN (SELECT value FROM json_each(:purposes)) "  # noqa: S608
            f"AND {_IN_KEYS} ORDER BY purpose, stage, task, key, repeat, seed",
            keys=keys,
            purposes=json.dumps(purposes or SEARCHED),
        )

    def num_trainings(self) -> int:
        """Return the number of trainings of the search without those that it trains again."""
        groups = self.database.query(
            "SELECT reason, count(*) AS number FROM trainings "
            "WHERE purpose IN ('search', 'target') GROUP BY reason"
        )
        return sum(group["number"] for group in groups if group["reason"] not in RETRIED_ON_RESUME)

    def candidates(
        self, keys: Iterable[str] | None = None, proposals: Iterable[Proposal] | None = None
    ) -> tuple[Candidate, ...]:
        """Return the mechanisms that the search trains, or those of ``keys``, in their order.

        ``proposals`` are all proposals of the run, if the caller has read them already.
        """
        keys = None if keys is None else [*keys]
        with self.snapshot():
            setup, estimates = self.setup, {e.key: e for e in self.estimates()}
            if proposals is None:
                proposals = self.new_proposals(keys).values()
            groups: defaultdict[tuple[str, str], list[Training]] = defaultdict(list)
            for training in self.trainings(keys=keys):
                groups[training.key, training.purpose].append(training)
        return tuple(
            Candidate(
                proposal,
                trainings=tuple(groups[str(proposal.key), "search"]),
                estimate=estimates.get(str(proposal.key)),
                num_repeats=setup.config.repeats,
                target=tuple(groups[str(proposal.key), "target"]) if setup.target else None,
            )
            for proposal in proposals
            if proposal.is_new
        )

    def front(self, candidates: Sequence[Candidate] | None = None) -> tuple[Candidate, ...]:
        """Return the non-dominated mechanisms, sorted from best to worst in the first objective.

        As soon as the run has estimates, the front is that of the estimated mechanisms: others wait
        for the end of their generation. A mechanism with a failed or missing training is never in
        the front, since the seeds that succeeded are a biased selection. ``candidates`` are all
        candidates of the run, if the caller has read them already.
        """
        objectives = self.setup.objectives
        candidates = self.candidates() if candidates is None else candidates
        complete = [candidate for candidate in candidates if candidate.is_ok]
        estimated = [c for c in complete if c.estimate is not None] or complete
        costs = [front_costs(objectives, c.objectives) for c in estimated]
        members = sorted(
            non_dominated(costs), key=lambda row: (costs[row], estimated[row].proposal.number)
        )
        return tuple(estimated[row] for row in members)

    def hypervolume(self, members: Sequence[Candidate]) -> float:
        """Return the hypervolume that some candidates dominate, see ``Generation``."""
        return scaled_hypervolume(self.setup.objectives, [c.objectives for c in members])

    def answers(self) -> tuple[dict[str, Any], ...]:
        """Return the JSON results of ``nas explain`` that the run recorded."""
        return self._records(dict[str, Any], "answers ORDER BY question")

    def estimates(self) -> tuple[Estimate, ...]:
        """Return the estimates after the last generation, sorted by key."""
        return self._records(Estimate, "estimates ORDER BY key")

    def incidents(self) -> tuple[Incident, ...]:
        """Return the failures of workers, in order."""
        return self._records(Incident, "incidents ORDER BY id")

    def generations(self, first: int = 0) -> tuple[Generation, ...]:
        """Return the complete generations from index ``first`` on, in order."""
        with self.snapshot():
            source = "generations WHERE number >= :first ORDER BY number"
            generations = self._records(Generation, source, first=first)
            counts = self._counts_by_generation(first)
        return tuple(replace(g, counts=counts.get(g.number, Counts())) for g in generations)

    def counts(self) -> Counts:
        """Return the numbers of all proposals so far."""
        return sum(self._counts_by_generation().values(), start=Counts())

    def _counts_by_generation(self, first: int = 0) -> dict[int, Counts]:
        config = self.setup.config
        rows = self.database.query(
            # "failed" and "stopped" as Candidate.status defines them
            "WITH ended AS (SELECT key, sum(purpose = 'search') >= :repeats AS evaluated, "
            "max(status = 'failed') AS failed, max(status = 'stopped') AS stopped "
            "FROM trainings WHERE purpose IN ('search', 'target') GROUP BY key) "
            "SELECT number / :population AS generation, count(*) AS proposed, "
            "sum(verdict = 'new' AND ifnull(evaluated, 0)) AS evaluated, "
            "sum(verdict = 'repeated') AS repeated, sum(verdict = 'replayed') AS replayed, "
            "sum(verdict = 'rejected') AS rejected, "
            "sum(verdict = 'new' AND ifnull(failed, 0)) AS failed, "
            "sum(verdict = 'new' AND ifnull(stopped AND NOT failed, 0)) AS stopped "
            "FROM proposals LEFT JOIN ended USING (key) "
            "WHERE number >= :first * :population GROUP BY generation",
            repeats=config.repeats,
            population=config.population,
            first=first,
        )
        return {row.pop("generation"): Counts(**row) for row in rows}

    def summary(self) -> RunSummary:
        """Return the line of the run in the list of runs."""
        with self.snapshot():
            setup, generations = self.setup, self.generations()
            last = generations[-1] if generations else None
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
                active=lock.last_acquired(self.folder),
                generations_done=len(generations),
                generations=setup.config.generations,
                counts=self.counts(),
                objective=setup.objectives[0],
                best=last.best if last else None,
                hypervolume=last.hypervolume if last else None,
            )

    def integrity(self) -> str:
        """Return the first fault that SQLite finds in the database, or "ok"."""
        return str(self.database.query("PRAGMA integrity_check(1)")[0]["integrity_check"])

    def snapshot(self) -> AbstractContextManager[None]:
        """Return a context manager in which all reads see the same state of the database."""
        return self.database.snapshot()

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _row(self) -> dict[str, Any]:
        records = self.database.query("SELECT * FROM run")
        if not records:
            raise RunError(f"{self.folder}: holds no run; begin a new one with `nas search`.")
        return records[0]

    def _records(
        self, kind: type[T], source: str, *, keys: Iterable[str] | None = None, **values: Any
    ) -> tuple[T, ...]:
        """Return the records of a table, with a condition and order in SQL."""
        values["keys"] = None if keys is None else json.dumps([*keys])
        rows = self.database.query(f"SELECT record FROM {source}", **values)  # noqa: S608
        return tuple(self._checked(from_json, kind, row["record"]) for row in rows)

    def _checked(self, read: Callable[..., T], *args: Any) -> T:
        try:
            return read(*args)
        except (ValueError, NasError) as error:
            raise RunError(
                f"{self.folder / DATABASE_FILE}: holds a record that cannot be read ({error}). "
                "Restore it from a copy."
            ) from error


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
