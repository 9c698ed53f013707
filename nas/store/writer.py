"""Write a run. Every record is on the disk when the call that writes it returns.

Each proposal is recorded before it is trained, and each training when it ends. Records are never
changed, except that a retried training replaces its failure.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from nas.common import DISTRIBUTION
from nas.common.errors import NasError, RunError
from nas.common.registry import plugin_versions
from nas.common.system import processor_name
from nas.evaluation.trial import Incident, Training
from nas.store.database import Database
from nas.store.files import sweep
from nas.store.lock import locked
from nas.store.records import Generation, PastSession, Session, to_json
from nas.store.run import Run, database_file

if TYPE_CHECKING:
    from nas.store.records import Estimate, Proposal

    Clock = Callable[[], datetime]

# Libraries whose versions can change the results of a search.
LIBRARIES: Final = ("torch", "torchvision", "numpy", "pymoo", "moocore", "ray")


def utc_now() -> datetime:
    """Return the present time as an aware datetime."""
    return datetime.now(UTC)


class RunWriter(AbstractContextManager["RunWriter"]):
    """The only writer of a run, whose ``run`` reads it. Close it, or use it as a context manager.

    All methods raise RunError if the run cannot be written.
    """

    def __init__(self, folder: Path, database: Database, clock: Clock) -> None:
        self.run = Run(folder, database)
        self._database = database
        self._resources = ExitStack()
        self._clock = clock
        self._has_session = self._is_finished = False
        self._reason = ""  # the error with which the search ended

    def record_proposals(self, proposals: Iterable[Proposal]) -> None:
        """Record proposals in one transaction."""
        now = self._clock().isoformat()
        with self._database.transaction():
            for proposal in proposals:
                self._database.insert("proposals", {"record": to_json(proposal), "recorded": now})

    def record_training(self, training: Training, generation: int | None) -> None:
        """Record a finished training in place of its failure; RunError if it has a success.

        ``generation`` is the index of the first generation that depends on the result. If a failure
        is replaced, that generation and all later ones are deleted.
        """
        with self._database.transaction():
            is_retried = insert_training(self._database, training, self._clock())
            if is_retried and generation is not None:
                outdated = "DELETE FROM generations WHERE number >= :number"
                if self._database.execute(outdated, number=generation):
                    self._database.execute("DELETE FROM estimates")

    def record_incident(self, incident: Incident) -> None:
        """Record a failure of a worker."""
        row = {"record": to_json(incident), "recorded": self._clock().isoformat()}
        self._database.insert("incidents", row)

    def record_generation(
        self,
        number: int,
        estimates: Sequence[Estimate],
        hypervolume: float,
        best: float | None,
        *,
        keeps_others: bool = False,
    ) -> None:
        """Record the state of the run after a generation, see ``Generation``.

        ``estimates`` are those of all mechanisms, or with ``keeps_others`` of the front and of the
        mechanisms whose estimate changed.
        """
        first = self.run.setup.objectives[0]
        members = {e.key: first.as_cost(e.means[first.name]) for e in estimates if e.is_member}
        proposals = self.run.new_proposals(members)
        keys = sorted(proposals, key=lambda key: (members[key], proposals[key].number))
        front = tuple(proposals[key].digest for key in keys)
        generation = Generation(number, self._clock(), hypervolume, best, front)
        with self._database.transaction():
            if not keeps_others:
                self._database.execute("DELETE FROM estimates")
            for estimate in estimates:
                self._database.insert("estimates", {"record": to_json(estimate)}, "REPLACE")
            self._database.insert("generations", {"record": to_json(generation)}, "REPLACE")

    def raise_generations(self, generations: int) -> None:
        """Raise the run's total number of generations. A smaller number changes nothing."""
        setup = self.run.setup
        if generations > setup.config.generations:
            setup = replace(setup, config=replace(setup.config, generations=generations))
            self._database.execute("UPDATE run SET record = :record", record=to_json(setup))

    def finish(self, note: str = "") -> None:
        """Mark the run as finished; ``note`` says why if it ended early."""
        self._set_status("finished", note, self._clock().isoformat())
        self._is_finished = True

    def close(self) -> None:
        """Close the run, which can be resumed if it is unfinished."""
        # A full disk may refuse this record. Without the lock the run counts as stopped anyway.
        with self._resources, contextlib.suppress(RunError):
            if self._has_session:
                self._has_session = False
                self._end_session()

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if isinstance(error, NasError):
            self._reason = str(error)
        elif isinstance(error, Exception):
            self._reason = f"{type(error).__name__}: {error}"
        self.close()

    def _begin_session(self, session: Session) -> None:
        past = PastSession(session, os.getpid(), socket.gethostname(), self._clock())
        with self._database.transaction():
            self._database.insert("sessions", {"record": to_json(past)})
            self._set_status("running", "", None)
        self._has_session = True

    def _end_session(self) -> None:
        with self._database.transaction():
            if not self._is_finished:
                self._set_status("stopped", self._reason, None)
            self._database.execute(
                "UPDATE sessions SET record = json_set(record, '$.ended', :now) "
                "WHERE id = (SELECT max(id) FROM sessions)",
                now=self._clock().isoformat(),
            )

    def _set_status(self, status: str, note: str, finished: str | None) -> None:
        self._database.execute(
            "UPDATE run SET status = :status, note = :note, finished = :finished",
            status=status,
            note=note.encode("utf-8", "backslashreplace").decode(),
            finished=finished,
        )


def this_session(command: str, *, workers: int = 1) -> Session:
    """Return a description of this process, without importing the libraries that it names."""
    versions = {"python": platform.python_version()}
    for name, package in (("nas", DISTRIBUTION), *zip(LIBRARIES, LIBRARIES, strict=True)):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(package)
    versions |= plugin_versions()
    return Session(command, versions, processor_name(), workers)


def open_writer(folder: Path, session: Session | None, *, clock: Clock = utc_now) -> RunWriter:
    """Open an existing run for writing.

    ``session`` describes a process that resumes the search; without one the state of the search
    stays unchanged.

    Raises:
        RunError: there is no run, another process writes it, the folder is not writable, or the
            database is damaged, was not written by nas, or has another schema.
    """
    path = database_file(folder)
    with ExitStack() as stack:
        stack.enter_context(locked(folder))
        sweep(folder)
        database = Database.open_to_write(path)
        stack.callback(database.close)
        writer = RunWriter(folder, database, clock)
        if session is None:  # a search that was killed is no longer running
            database.execute("UPDATE run SET status = 'stopped' WHERE status = 'running'")
        else:
            writer._begin_session(session)
        writer._resources = stack.pop_all()
    return writer


def insert_training(
    database: Database,
    training: Training,
    now: datetime,
    on_conflict: Literal["ABORT", "IGNORE"] = "ABORT",
) -> bool:
    """Record a training in a transaction of the caller; return whether it replaced its failure."""
    num_failures = database.execute(
        "DELETE FROM trainings WHERE purpose = :purpose AND stage = :stage AND task = :task "
        "AND key = :key AND repeat = :repeat AND seed = :seed AND status = 'failed'",
        purpose=training.purpose,
        stage=training.stage,
        task=training.task,
        key=training.key,
        repeat=training.repeat,
        seed=training.evaluation.seed,
    )
    row = {"record": to_json(replace(training, recorded=now))}
    database.insert("trainings", row, on_conflict)
    return num_failures > 0
