"""A run, opened to write: by one process at a time, each record on the disk before a call returns.

A resumed search proposes everything again from the start. What is recorded already is compared
and kept; what differs is an error, because a front must not depend on where a run was interrupted.
"""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from nas.errors import RunError
from nas.store import lock, rows
from nas.store.database import Database
from nas.store.run import DATABASE_FILE, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import TracebackType

    from nas.evaluation.record import Evaluation
    from nas.store.records import Generation, Proposal, RunSetup, Session

    Clock = Callable[[], datetime]

# What makes a proposal the same; its formula is for reading and may be written better one day.
PROPOSAL_IDENTITY: Final = ("digest", "key", "genome", "origin", "parents", "outcome")
GENERATION_IDENTITY: Final = ("hypervolume", "best_accuracy", "front", *rows.COUNTS)


def utc_now() -> datetime:
    """The time, aware."""
    return datetime.now(UTC)


class RunWriter:
    """The one writer of a run. Close it, or use it as a context; read through ``run``."""

    def __init__(self, folder: Path, database: Database, held: lock.Lock, clock: Clock) -> None:
        self.run = Run(folder, database)
        self._database = database
        self._lock = held
        self._clock = clock
        self._is_finished = False
        self._is_open = True

    def record_proposals(self, proposals: Iterable[Proposal]) -> int:
        """Record proposals, all or none; give how many were not recorded yet.

        Raises:
            RunError: a recorded proposal of the same generation and position differs.
        """
        num_new = 0
        with self._database.transaction():
            for proposal in proposals:
                row = rows.proposal_to_row(proposal)
                recorded = self._recorded_proposal(proposal.generation, proposal.position)
                if recorded is None:
                    self._database.insert("proposals", row)
                    num_new += 1
                elif any(recorded[name] != row[name] for name in PROPOSAL_IDENTITY):
                    raise self._difference(recorded, row)
        return num_new

    def record_evaluation(self, key: str, repeat: int, evaluation: Evaluation) -> None:
        """Record a training that ended; on return it is on the disk.

        Args:
            key: resolved digest, proposed before.
            repeat: 0 <= repeat < repeats of the setup; each is recorded once.
            evaluation: if it ended well, with all of the run's objectives.
        """
        setup = self.run.setup
        assert 0 <= repeat < setup.repeats, repeat
        assert not evaluation.is_ok or all(
            o.name in evaluation.objectives for o in setup.objectives
        )
        assert self.run.proposal_by_key(key) is not None, f"{key} was not proposed"
        assert self.run.evaluation(key, repeat) is None, f"{key} was trained twice"
        row = rows.evaluation_to_row(evaluation)
        row |= {"key": key, "repeat": repeat, "recorded": rows.from_datetime(self._clock())}
        self._database.insert("evaluations", row)

    def record_generation(self, generation: Generation) -> None:
        """Record that a generation is complete; one recorded already keeps its times.

        Raises:
            RunError: what the replay gave differs from the record.
        """
        row = rows.generation_to_row(generation)
        recorded = self._database.query(
            "SELECT * FROM generations WHERE number = :number", number=generation.number
        )
        if not recorded:
            self._database.insert("generations", row)
            return
        for name in GENERATION_IDENTITY:
            if recorded[0][name] != row[name]:
                raise RunError(
                    f"run {self.run.name!r}, generation {generation.number}: {name} is now "
                    f"{row[name]}, but the record says {recorded[0][name]}.{self._advice()}"
                )

    def raise_generations(self, generations: int) -> None:
        """Ask for more generations than the run was begun with; fewer changes nothing."""
        self._database.execute(
            "UPDATE run SET generations = max(generations, :generations)", generations=generations
        )

    def finish(self, note: str = "") -> None:
        """Mark the run as done; ``note`` says why where it is not by its last generation."""
        self._set_status("finished", note, rows.from_datetime(self._clock()))
        self._is_finished = True

    def close(self) -> None:
        """Let go of the run; one that is not finished can be resumed. Again does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            # On a full disk even this cannot be written; a run without its lock counts as stopped.
            with contextlib.suppress(RunError):
                self._end_session()
        finally:
            self._database.stand_alone()
            self._database.close()
            self._lock.release()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def begin_session(self, session: Session) -> None:
        """Write down which process writes from now on."""
        row = rows.session_to_row(session) | {
            "started": rows.from_datetime(self._clock()),
            "pid": os.getpid(),
            "host": socket.gethostname(),
        }
        with self._database.transaction():
            self._database.insert("sessions", row)
            self._set_status("running", "", None)

    def _end_session(self) -> None:
        with self._database.transaction():
            if not self._is_finished:
                self._set_status("stopped", "", None)
            self._database.execute(
                "UPDATE sessions SET ended = :now WHERE id = (SELECT max(id) FROM sessions)",
                now=rows.from_datetime(self._clock()),
            )

    def _set_status(self, status: str, note: str, finished: str | None) -> None:
        self._database.execute(
            "UPDATE run SET status = :status, note = :note, finished = :finished",
            status=status,
            note=rows.text(note),
            finished=finished,
        )

    def _recorded_proposal(self, generation: int, position: int) -> rows.Row | None:
        found = self._database.query(
            "SELECT * FROM proposals WHERE generation = :generation AND position = :position",
            generation=generation,
            position=position,
        )
        return found[0] if found else None

    def _difference(self, recorded: rows.Row, row: rows.Row) -> RunError:
        names = [name for name in PROPOSAL_IDENTITY if recorded[name] != row[name]]
        return RunError(
            f"run {self.run.name!r}, generation {row['generation']}, proposal {row['position']}: "
            f"the search now proposes {_brief(row)}, but the record says {_brief(recorded)} "
            f"(they differ in {', '.join(names)}).{self._advice()}"
        )

    def _advice(self) -> str:
        """Why a replay may differ, and what to do."""
        sessions = [past.session for past in self.run.sessions()]
        changes = _changes(sessions[0], sessions[-1]) if sessions else ""
        cause = f" Since it began, {changes}." if changes else ""
        return f"{cause} Resume it with what it was begun with, or start a new run."


def open_writer(folder: Path, session: Session, *, clock: Clock = utc_now) -> RunWriter:
    """Open an existing run to go on with it.

    Raises:
        RunError: there is no run, another process writes it, the folder is not writable, or the
            database is damaged, foreign, or of a schema that cannot be migrated.
    """
    path = folder / DATABASE_FILE
    if not path.is_file():
        raise RunError(f"{folder}: is no run folder; expected one that holds {DATABASE_FILE}.")
    held = lock.acquire(folder)
    try:
        writer = RunWriter(folder, Database.open_to_write(path), held, clock)
    except BaseException:
        held.release()
        raise
    try:
        writer.begin_session(session)
    except BaseException:
        writer.close()
        raise
    return writer


def write_setup(path: Path, setup: RunSetup, now: datetime) -> None:
    """Make the database of a new run and close it; nobody else may know its folder yet."""
    row: dict[str, Any] = rows.setup_to_row(setup)
    row |= {"id": 1, "status": "stopped", "started": rows.from_datetime(now)}
    database = Database.create(path)
    try:
        database.insert("run", row)
    finally:
        database.close()


def _brief(row: rows.Row) -> str:
    return f"{row['digest']} ({row['origin']}, {row['outcome']})"


def _changes(first: Session, last: Session) -> str:
    """What is different now, in words."""
    before = dict(first.versions) | {"processor": first.processor}
    after = dict(last.versions) | {"processor": last.processor}
    return ", ".join(
        f"{name} changed from {before.get(name, 'none')} to {after.get(name, 'none')}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )
