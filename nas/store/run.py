"""Read a run, and find its mechanisms by name or id.

Reading changes no record and never waits for the process that writes the run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from nas.common.errors import RunError
from nas.common.objectives import Objective, as_costs, front_costs
from nas.common.pareto import knee, non_dominated, scaled_hypervolume
from nas.evaluation.trial import RETRIED_ON_RESUME, Incident, Purpose, Training
from nas.store import lock
from nas.store.database import Database
from nas.store.files import run_argument
from nas.store.records import (
    Candidate,
    Counts,
    Estimate,
    Generation,
    Proposal,
    RunSetup,
    RunStatus,
    RunSummary,
    Session,
    T,
)

DATABASE_FILE: Final = "run.sqlite"
NAMED_MEMBERS: Final = ("best", "knee", "cheapest")
MAX_LISTED: Final = 8
SEARCHED: Final[tuple[Purpose, ...]] = ("search", "target")  # trainings of a search's candidates
_IN_KEYS: Final = "(:keys IS NULL OR key IN (SELECT value FROM json_each(:keys)))"


class Run(Database):
    """The database of a run, or the file of ``--record``, and the records that it holds."""

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.path.parent

    @property
    def name(self) -> str:
        """The present name of the folder, since a run may be moved or renamed."""
        return self.folder.resolve().name

    @property
    def setup(self) -> RunSetup:
        """What was recorded when the run began: settings, space, task, objectives."""
        return self._of_run(RunSetup, "run")[0]

    @property
    def status(self) -> RunStatus:
        """The recorded status, but "stopped" if the process that wrote the run was killed."""
        status = self.sessions()[-1].status
        return "stopped" if status == "running" and not lock.is_held(self.folder) else status

    @property
    def is_exhausted(self) -> bool:
        """Whether the search ended because none of its last attempts gave a new mechanism."""
        last = self.records(Proposal, "proposals ORDER BY number DESC, attempt DESC LIMIT 1")
        return bool(last) and not last[0].is_trained

    def sessions(self) -> tuple[Session, ...]:
        """Return the processes that began or resumed the run, in order; there is at least one."""
        return self._of_run(Session, "sessions ORDER BY rowid")

    def _of_run(self, kind: type[T], source: str) -> tuple[T, ...]:
        if records := self.records(kind, source):
            return records
        raise RunError(f"{self.folder}: holds no run; begin a new one with `nas search`.")

    def proposals(self) -> tuple[Proposal, ...]:
        """Return all proposals, sorted by number and attempt."""
        return self.records(Proposal, "proposals ORDER BY number, attempt")

    def proposal(self, digest: str) -> Proposal | None:
        """Return the first proposal of a digest, preferably a "new" one; None if there is none."""
        order = "ORDER BY verdict != 'new', number, attempt LIMIT 1"
        source = f"proposals WHERE digest = :digest {order}"
        return next(iter(self.records(Proposal, source, digest=digest)), None)

    def new_proposals(self, keys: Iterable[str] | None = None) -> dict[str, Proposal]:
        """Return the proposal with which each mechanism, or each of ``keys``, was trained first."""
        source = f"proposals WHERE verdict = 'new' AND {_IN_KEYS} ORDER BY number"
        proposals = self.records(Proposal, source, keys=_json(keys))
        return {str(proposal.key): proposal for proposal in proposals}

    def digests(self) -> tuple[str, ...]:
        """Return the digests of all proposed genomes, each once, sorted."""
        rows = self.query("SELECT DISTINCT digest FROM proposals ORDER BY digest")
        return tuple(digest for (digest,) in rows)

    def trainings(
        self, *purposes: Purpose, keys: Iterable[str] | None = None
    ) -> tuple[Training, ...]:
        """Return the trainings of all mechanisms, or of ``keys``, that served a purpose.

        By default these are the trainings of the search's candidates, under its task and its target
        task. They are sorted by purpose, stage, task, key and repeat.
        """
        return self.records(
            Training,
            "trainings WHERE purpose IN (SELECT value FROM json_each(:purposes)) "  # noqa: S608
            f"AND {_IN_KEYS} ORDER BY purpose, stage, task, key, repeat, seed",
            keys=_json(keys),
            purposes=_json(purposes or SEARCHED),
        )

    def num_trainings(self) -> int:
        """Return the number of trainings of the search without those that it trains again."""
        groups = self.query(
            "SELECT reason, count(*) FROM trainings "
            "WHERE purpose IN ('search', 'target') GROUP BY reason"
        )
        return sum(number for reason, number in groups if reason not in RETRIED_ON_RESUME)

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
        return self.records(dict[str, Any], "answers ORDER BY question")

    def estimates(self) -> tuple[Estimate, ...]:
        """Return the estimates after the last generation, sorted by key."""
        return self.records(Estimate, "estimates ORDER BY key")

    def incidents(self) -> tuple[Incident, ...]:
        """Return the failures of workers, in order."""
        return self.records(Incident, "incidents ORDER BY id")

    def generations(self, first: int = 0) -> tuple[Generation, ...]:
        """Return the complete generations from index ``first`` on, in order."""
        source = "generations WHERE number >= :first ORDER BY number"
        return self.records(Generation, source, first=first)

    def counts(self) -> Counts:
        """Return the numbers of all proposals so far."""
        (numbers,) = self.query(
            # "failed" and "stopped" as Candidate.status defines them
            "WITH ended AS (SELECT key, sum(purpose = 'search') >= :repeats AS evaluated, "
            "max(status = 'failed') AS failed, max(status = 'stopped') AS stopped "
            "FROM trainings WHERE purpose IN ('search', 'target') GROUP BY key) "
            "SELECT count(*), sum(verdict = 'new' AND ifnull(evaluated, 0)), "
            "sum(verdict = 'repeated'), sum(verdict = 'replayed'), sum(verdict = 'rejected'), "
            "sum(verdict = 'new' AND ifnull(failed, 0)), "
            "sum(verdict = 'new' AND ifnull(stopped AND NOT failed, 0)) "
            "FROM proposals LEFT JOIN ended USING (key)",
            repeats=self.setup.config.repeats,
        )
        return Counts(*(number or 0 for number in numbers))

    def summary(self) -> RunSummary:
        """Return the line of the run in the list of runs."""
        with self.snapshot():
            return RunSummary(
                self.name,
                self.folder,
                self.status,
                lock.last_acquired(self.folder),
                self.setup,
                self.sessions(),
                self.generations(),
                self.counts(),
            )

    def integrity(self) -> str:
        """Return the first fault that SQLite finds in the database, or "ok"."""
        ((fault,),) = self.query("PRAGMA integrity_check(1)")
        return str(fault)


def open_run(folder: Path) -> Run:
    """Open a run for reading; RunError if there is none, or it is damaged or has another schema."""
    return Run(database_file(folder))


def database_file(folder: Path) -> Path:
    """Return the path of a run's database; raise RunError if the folder holds none."""
    path = folder / DATABASE_FILE
    if not path.is_file():
        raise RunError(f"{folder}: is no run folder; expected one that holds {DATABASE_FILE}.")
    return path


def _json(items: Iterable[str] | None) -> str | None:
    return None if items is None else json.dumps([*items])


def named_members(
    objectives: Sequence[Objective], members: Sequence[Candidate]
) -> dict[str, Candidate]:
    """Return the named members of a front, which is sorted from best to worst.

    "best" is the best member in the first objective, "knee" that of ``nas.common.pareto.knee``, and
    "cheapest" that with the lowest first cost; it is absent if no objective is a cost.
    """
    if not members:
        return {}
    costs = [as_costs(objectives, member.objectives) for member in members]
    named = {"best": members[0], "knee": members[knee(costs)]}
    for column in [i for i, o in enumerate(objectives) if not o.is_metric][:1]:
        row = min(range(len(members)), key=lambda i: (costs[i][column], costs[i]))
        named["cheapest"] = members[row]
    return named


def find_candidate(run: Run, digest: str) -> Candidate | None:
    """Return the records of a genome or of its duplicate; None unless all trainings succeeded."""
    with run.snapshot():
        proposal = run.proposal(digest)
        matches = () if proposal is None else run.candidates([str(proposal.key)])
    return next((candidate for candidate in matches if candidate.is_ok), None)


def find_proposal(run: Run, member: str) -> Proposal:
    """Return the proposal of a mechanism; raise RunError if no proposal or several match.

    ``member`` is the name of a find, the beginning of a digest, or one of ``NAMED_MEMBERS``.
    """
    if member in NAMED_MEMBERS:
        members = named_members(run.setup.objectives, run.front())
        if member in members:
            return members[member].proposal
        why = "no objective is a cost" if members else "no training within its limits succeeded"
        raise RunError(f"run {run.name!r} has no {member} member: {why}.")
    prefix = member.lower().rpartition("-")[2]  # of the name of a find, or of a digest
    digests = [digest for digest in run.digests() if prefix and digest.startswith(prefix)]
    if not digests:
        raise RunError(
            f"{run.name}/{member}: no genome of this run has a digest that begins so; expected "
            f"the beginning of a digest (0-9, a-f) or one of {', '.join(NAMED_MEMBERS)}. "
            f"`nas front {run_argument(run.folder)}` lists some."
        )
    proposal = run.proposal(digests[0])
    if len(digests) == 1 and proposal is not None:
        return proposal
    more = f" and {len(digests) - MAX_LISTED} more" if len(digests) > MAX_LISTED else ""
    raise RunError(
        f"{run.name}/{member}: {len(digests)} digests begin so: "
        f"{', '.join(digests[:MAX_LISTED])}{more}. Give more of the one you mean."
    )
