"""Write a run: one process at a time; each record is on disk when the call returns.

Proposals are recorded before they are trained, all attempts for a number together; trainings as
they end. Records are never changed, except that a retried training replaces its failure.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.common.errors import RunError
from nas.common.processor import processor_name
from nas.common.registry import plugin_versions
from nas.evaluation.trial import Evaluation, Incident, Training
from nas.store import lock, rows
from nas.store.database import Database
from nas.store.files import sweep, write_whole
from nas.store.records import Session
from nas.store.run import DATABASE_FILE, Run, database_file

if TYPE_CHECKING:
    from nas.store.records import Estimate, Proposal, RunSetup
    from nas.store.run import Command

    Clock = Callable[[], datetime]

# Libraries whose version can change a front.
LIBRARIES: Final = ("nas", "torch", "torchvision", "numpy", "pymoo", "moocore", "ray")


def utc_now() -> datetime:
    """The present time as an aware datetime."""
    return datetime.now(UTC)


class RunWriter(AbstractContextManager["RunWriter"]):
    """The only writer of a run. Close it, or use it as a context; ``run`` reads the run."""

    def __init__(self, folder: Path, database: Database, held: lock.Lock, clock: Clock) -> None:
        self.run = Run(folder, database)
        self._database = database
        self._lock = held
        self._clock = clock
        self._has_session = self._is_finished = False
        self._is_open = True

    def record_proposals(self, proposals: Iterable[Proposal]) -> None:
        """Record proposals with all their attempts, in one transaction."""
        now = self._now()
        with self._database.transaction():
            for proposal in proposals:
                self._database.insert("proposals", rows.to_row(proposal) | {"recorded": now})

    def record_training(self, training: Training, generation: int = 0) -> None:
        """Record a finished training; it is on disk on return.

        It replaces a recorded failure of the same training. Otherwise a training that is already
        recorded is an error.

        Args:
            generation: generation of the search that the training belongs to. If a failure of the
                search is replaced, the estimates of this generation and of all later ones are
                deleted, because they depend on it.
        """
        row = rows.training_to_row(training) | {"recorded": self._now()}
        with self._database.transaction():
            if _delete_failure(self._database, row) and training.purpose == "search":
                later = {"number": generation}
                self._database.execute("DELETE FROM generations WHERE number >= :number", **later)
                self._database.execute("DELETE FROM estimates WHERE generation >= :number", **later)
            self._database.insert("trainings", row)

    def record_evaluation(
        self, key: str, repeat: int, evaluation: Evaluation, generation: int = 0
    ) -> None:
        """Record a training of the search; see ``record_training``."""
        task = self.run.setup.task
        training = Training("search", task.fingerprint, task.name, key, "", repeat, evaluation)
        self.record_training(training, generation)

    def complete_setup(self, setup: RunSetup) -> None:
        """Replace task and objectives of a run once the references of its suite are measured."""
        row = rows.to_row(setup)
        names = [name for name in row if name.startswith("task_") or name == "objectives"]
        columns = ", ".join(f"{name} = :{name}" for name in names)
        write_whole(self.run.folder / "task.yaml", setup.task.text.encode("utf-8", "replace"))
        self._database.execute(f"UPDATE run SET {columns}", **{name: row[name] for name in names})  # noqa: S608

    def record_incident(self, incident: Incident) -> None:
        """Record a failure of a worker."""
        self._database.insert("incidents", rows.to_row(incident) | {"recorded": self._now()})

    def record_generation(
        self, number: int, estimates: Iterable[Estimate], hypervolume: float, best: float | None
    ) -> None:
        """Record the state of the run after a generation, in one transaction.

        Estimates of earlier generations are deleted, except those of front members.
        """
        now = rows.from_datetime(self._clock())
        row = {"number": number, "hypervolume": hypervolume, "best": best, "finished": now}
        with self._database.transaction():
            self._database.execute("DELETE FROM generations WHERE number = :number", number=number)
            self._database.execute(
                "DELETE FROM estimates WHERE NOT is_member OR generation = :number", number=number
            )
            self._database.insert("generations", row)
            for estimate in estimates:
                row = rows.to_row(estimate) | {"generation": number}
                self._database.insert("estimates", row)

    def raise_generations(self, generations: int) -> None:
        """Raise the number of generations; a smaller one changes nothing."""
        self._database.execute(
            "UPDATE run SET generations = max(generations, :generations)", generations=generations
        )

    def finish(self, note: str = "") -> None:
        """Mark the run as finished; ``note`` gives the reason if it ended early."""
        self._set_status("finished", note, self._now())
        self._is_finished = True

    def close(self) -> None:
        """Close the run; an unfinished one can be resumed. Idempotent."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            # On a full disk even this cannot be written; a run without its lock counts as stopped.
            with contextlib.suppress(RunError):
                if self._has_session:
                    self._end_session()
        finally:
            self._database.checkpoint()
            self._database.close()
            self._lock.release()

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin_session(self, session: Session) -> None:
        """Record this process as the writer from now on."""
        who = {"pid": os.getpid(), "host": socket.gethostname()}
        row = rows.to_row(session) | who | {"started": self._now()}
        with self._database.transaction():
            self._database.insert("sessions", row)
            self._set_status("running", "", None)
        self._has_session = True

    def end_killed_session(self) -> None:
        """Mark a search whose process was killed as stopped."""
        self._database.execute("UPDATE run SET status = 'stopped' WHERE status = 'running'")

    def _now(self) -> str:
        return rows.from_datetime(self._clock())

    def _end_session(self) -> None:
        with self._database.transaction():
            if not self._is_finished:
                self._set_status("stopped", "", None)
            self._database.execute(
                "UPDATE sessions SET ended = :now WHERE id = (SELECT max(id) FROM sessions)",
                now=self._now(),
            )

    def _set_status(self, status: str, note: str, finished: str | None) -> None:
        self._database.execute(
            "UPDATE run SET status = :status, note = :note, finished = :finished",
            status=status,
            note=rows.text(note),
            finished=finished,
        )


def this_session(command: str, *, workers: int = 1) -> Session:
    """Describe this process without importing the libraries."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    versions |= plugin_versions()
    return Session(command, versions, processor_name(), workers)


def open_writer(folder: Path, session: Session | None, *, clock: Clock = utc_now) -> RunWriter:
    """Open an existing run for writing.

    Args:
        session: the session of a resumed search; None to record other trainings, which leaves the
            state of the search unchanged.

    Raises:
        RunError: there is no run, another process writes it, the folder is not writable, or the
            database is damaged, foreign, or of another schema.
    """
    path = database_file(folder)
    with contextlib.ExitStack() as on_error:
        held = lock.acquire(folder)
        on_error.callback(held.release)
        sweep(folder)
        writer = RunWriter(folder, Database.open_to_write(path), held, clock)
        on_error.callback(writer.close)
        if session is None:
            writer.end_killed_session()
        else:
            writer.begin_session(session)
        on_error.pop_all()
    return writer


def append_training(folder: Path, training: Training) -> None:
    """Record a training of another command than search, also while another process writes the run.

    It needs no lock, since SQLite serialises writers. A training that is already recorded is not
    replaced, unless it failed.

    Raises:
        RunError: the run cannot be written.
    """
    row = rows.training_to_row(training) | {"recorded": rows.from_datetime(utc_now())}
    with Database.appending(database_file(folder)) as database, database.transaction():
        _delete_failure(database, row)
        database.insert("trainings", row, is_new=False)


def append_answer(
    folder: Path, command: Command, question: Sequence[str], answer: Mapping[str, Any]
) -> None:
    """Record the JSON answer of a command; it replaces an earlier answer to the same question.

    Args:
        question: identifies the answer: digests of mechanisms and fingerprints of tasks.

    Raises:
        RunError: the run cannot be written.
    """
    row = {
        "command": command,
        "question": hashlib.sha256("\n".join(question).encode()).hexdigest()[:16],
        "answer": rows.text(json.dumps(answer, ensure_ascii=False, allow_nan=False)),
        "recorded": rows.from_datetime(utc_now()),
    }
    with Database.appending(database_file(folder)) as database, database.transaction():
        same = "DELETE FROM answers WHERE command = :command AND question = :question"
        database.execute(same, **row)
        database.insert("answers", row)


def _delete_failure(database: Database, row: rows.Row) -> bool:
    """Delete the recorded failure of the same training; return whether there was one."""
    failed = (
        "FROM trainings WHERE purpose = :purpose AND stage = :stage AND task = :task "
        "AND key = :key AND repeat = :repeat AND seed = :seed AND status = 'failed'"
    )
    is_recorded = bool(database.query(f"SELECT 1 {failed}", **row))
    if is_recorded:
        database.execute(f"DELETE {failed}", **row)
    return is_recorded


def write_setup(path: Path, setup: RunSetup, now: datetime) -> None:
    """Create the database of a new run in a folder that no other process uses yet."""
    row = rows.to_row(setup) | {"id": 1, "status": "stopped", "started": rows.from_datetime(now)}
    database = Database.create(path)
    try:
        database.insert("run", row)
    finally:
        database.close()


def checkpoint_wal(folder: Path) -> None:
    """Write a finished run's log into its database, if its writer was killed before.

    Raises:
        RunError: another process writes the run, or the folder is not writable.
    """
    if is_checkpointed(folder):
        return
    held = lock.acquire(folder)
    try:
        database = Database.open_to_write(folder / DATABASE_FILE)
        database.checkpoint()
        database.close()
    finally:
        held.release()


def is_checkpointed(folder: Path) -> bool:
    """Whether a run's database has no separate log, so that it may be copied alone."""
    path = folder / DATABASE_FILE
    with path.open("rb") as file:  # see its header (https://sqlite.org/fileformat.html, 1.3.3)
        is_in_log_mode = file.read(20)[18:20] == b"\x02\x02"
    return not is_in_log_mode and not path.with_name(f"{DATABASE_FILE}-wal").exists()
