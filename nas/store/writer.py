"""Write a run. Every record is on the disk when the call that writes it returns.

Each proposal is recorded before it is trained, and each training when it ends. Records are never
changed, except that a retried training replaces its failure.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final, TypeAlias

from nas.common import DISTRIBUTION
from nas.common.errors import NasError, NasWarning, RunError
from nas.common.registry import plugin_versions
from nas.common.system import processor_name
from nas.evaluation.trial import Incident, Purpose, Training
from nas.store.files import sweep
from nas.store.lock import locked
from nas.store.records import Estimate, Generation, Proposal, Session, to_json, utc_now
from nas.store.run import Run, database_file, open_run

Clock: TypeAlias = Callable[[], datetime]

# Libraries whose versions can change the results of a search.
LIBRARIES: Final = ("torch", "torchvision", "numpy", "pymoo", "moocore", "ray")


class RunWriter(AbstractContextManager["RunWriter"]):
    """The only writer of a run, whose ``run`` reads it. Close it, or use it as a context manager.

    All methods raise RunError if the run cannot be written.
    """

    def __init__(self, run: Run, session: Session | None, clock: Clock) -> None:
        self.run = run
        self._session = session
        self._clock = clock
        self._resources = ExitStack()
        self._error = ""  # with which the search ended

    def record_proposals(self, proposals: Iterable[Proposal]) -> None:
        """Record proposals in one transaction."""
        with self.run.transaction():
            for proposal in proposals:
                self.run.insert("proposals", proposal)

    def record_training(self, training: Training, generation: int | None) -> None:
        """Record a finished training in place of its failure; RunError if it has a success.

        ``generation`` is the first that depends on the result; it and all later ones are deleted.
        """
        with self.run.transaction():
            if not _record_training(self.run, training, self._clock()):
                raise RunError(
                    f"{self.run.path}: refuses a record that it has; does another process write "
                    "this run? End it."
                )
            if generation is not None:
                outdated = "DELETE FROM generations WHERE number >= :number"
                if self.run.execute(outdated, number=generation):
                    self.run.execute("DELETE FROM estimates")

    def record_incident(self, incident: Incident) -> None:
        """Record a failure of a worker."""
        self.run.insert("incidents", incident)

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
        with self.run.transaction():
            if not keeps_others:
                self.run.execute("DELETE FROM estimates")
            for estimate in estimates:
                self.run.insert("estimates", estimate, "REPLACE")
            self.run.insert("generations", generation, "REPLACE")

    def raise_generations(self, generations: int) -> None:
        """Raise the run's total number of generations. A smaller number changes nothing."""
        setup = self.run.setup
        if generations > setup.config.generations:
            setup = replace(setup, config=replace(setup.config, generations=generations))
            self.run.execute("UPDATE run SET record = :record", record=to_json(setup))

    def finish(self, note: str = "") -> None:
        """Mark the run as finished; ``note`` says why if it ended early."""
        self._record_session(status="finished", note=note)

    def close(self) -> None:
        """Close the run, which can be resumed if it is unfinished."""
        # A full disk may refuse this record. Without the lock the run counts as stopped anyway.
        with self._resources, contextlib.suppress(RunError):
            if self._session is not None and self._session.status == "running":
                self._session = replace(self._session, status="stopped", note=self._error)
            self._record_session(ended=self._clock())
        self._session = None

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if isinstance(error, NasError):
            self._error = str(error)
        elif isinstance(error, Exception):
            self._error = f"{type(error).__name__}: {error}"
        self.close()

    def _record_session(self, **changes: Any) -> None:
        if self._session is not None:
            self._session = replace(self._session, **changes)
            self.run.insert("sessions", self._session, "REPLACE")


def this_session(command: str, *, workers: int = 1) -> Session:
    """Return a description of this process, without importing the libraries that it names."""
    versions = {"python": platform.python_version()}
    packages = {"nas": DISTRIBUTION} | {name: name for name in LIBRARIES}
    for name, package in packages.items():
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(package)
    versions |= plugin_versions()
    return Session(command, versions, processor_name(), workers)


def open_writer(folder: Path, session: Session | None, *, clock: Clock = utc_now) -> RunWriter:
    """Open an existing run for writing; raise RunError as ``locked`` and ``open_run`` do.

    ``session`` describes a process that resumes the search; None leaves the search unchanged.
    """
    path = database_file(folder)
    with ExitStack() as stack:
        stack.enter_context(locked(folder))
        sweep(folder)
        run = stack.enter_context(Run(path, "write"))
        run.execute(  # sessions that were killed
            "UPDATE sessions SET record = json_set(record, '$.status', 'stopped') "
            "WHERE record ->> 'status' = 'running'"
        )
        writer = RunWriter(run, session, clock)
        writer._record_session()
        writer._resources = stack.pop_all()
    return writer


def _record_training(run: Run, training: Training, now: datetime) -> int:
    """Record a training, also in place of its failure; return 0 if the run has a success."""
    return run.execute(
        "INSERT INTO trainings (record) VALUES (:record) "
        "ON CONFLICT (purpose, key, repeat, stage, task, seed) "
        "DO UPDATE SET record = excluded.record WHERE status = 'failed'",
        record=to_json(replace(training, recorded=now)),
    )


def record_file(folder: Path, *compared: str) -> Path:
    """Return the file of a comparison's trainings by the present versions of code, plug-ins too."""
    session = this_session("")
    content = repr((compared, session.versions, session.hardware))
    with contextlib.suppress(OSError):  # RunRecord reports that the file cannot be created
        folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{hashlib.sha256(content.encode()).hexdigest()[:16]}.sqlite"


class RunRecord(AbstractContextManager["RunRecord"]):
    """Adds finished trainings and JSON results of a command without a search to runs and a file.

    A search may write such a run at the same time: each record is one transaction. If a run cannot
    be written, a NasWarning says so, and the run is left out from then on. The file, that of
    ``--record``, is created if it does not exist, and one process at a time may use it; RunError is
    raised if another uses it, if it holds something else, or if it cannot be written.
    """

    def __init__(self, folders: Iterable[Path], file: str | Path | None) -> None:
        self._folders = dict.fromkeys(folders)
        self._file = None
        if file is not None:
            path = Path(file)
            self._file = (Run if path.exists() else Run.create)(path, "exclusive")

    def trainings(self, purpose: Purpose) -> list[Training]:
        """Return the recorded trainings that served a purpose, in the order of their ends."""
        trainings = [*(self._file.trainings(purpose) if self._file else ())]
        for folder in self._folders:
            with open_run(folder) as run:
                trainings += run.trainings(purpose)
        return sorted(trainings, key=lambda training: training.recorded)

    def add(self, training: Training) -> None:
        """Record a training. It replaces a failure of the same training, but never a success."""
        now = utc_now()
        self._write(lambda run: _record_training(run, training, now))

    def add_answer(self, question: Sequence[str], answer: Mapping[str, Any]) -> None:
        """Record the JSON result of ``nas explain``; it replaces one to the same question.

        ``question`` are the texts that identify it: digests of mechanisms, fingerprints of tasks.
        """
        digest = hashlib.sha256("\n".join(question).encode()).hexdigest()[:16]
        self._write(lambda run: run.insert("answers", dict(answer), "REPLACE", question=digest))

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, write: Callable[[Run], object]) -> None:
        if self._file is not None:
            write(self._file)
        for folder in list(self._folders):
            try:
                with Run(database_file(folder), "write") as run:
                    write(run)
            except RunError as error:
                del self._folders[folder]
                text = f"the answer cannot be kept for the run's report: {error}"
                warnings.warn(text, NasWarning, stacklevel=2)
