"""A run, opened to read: its setup, sessions, proposals, evaluations and generations.

Reading changes nothing and never waits for the process that writes. What follows from the records
(candidates, front, lineage) is in ``nas.store.front``.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nas.errors import NasError, RunError
from nas.store import lock, rows
from nas.store.database import Database
from nas.store.records import Counts, RunSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from nas.evaluation.record import Evaluation
    from nas.store.records import Generation, PastSession, Proposal, RunSetup, RunStatus

DATABASE_FILE: Final = "run.sqlite"

T = TypeVar("T")


class Run:
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
        status: RunStatus = self._row()["status"]
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
        return rows.to_datetime(self._row()["started"])

    def sessions(self) -> tuple[PastSession, ...]:
        """The processes that wrote the run, in order."""
        return self._all(rows.session_from_row, "SELECT * FROM sessions ORDER BY id")

    def proposals(self, generation: int | None = None) -> tuple[Proposal, ...]:
        """Proposals in order, of one generation or of all."""
        return self._all(
            rows.proposal_from_row,
            "SELECT * FROM proposals WHERE :generation IS NULL OR generation = :generation "
            "ORDER BY generation, position",
            generation=generation,
        )

    def proposal_by_key(self, key: str) -> Proposal | None:
        """The first proposal that was to be trained under a resolved digest."""
        return self._first(
            rows.proposal_from_row,
            "SELECT * FROM proposals WHERE key = :key AND outcome = 'new' "
            "ORDER BY generation, position LIMIT 1",
            key=key,
        )

    def proposal_by_digest(self, digest: str) -> Proposal | None:
        """The proposal of a genome that was trained, else the first of it."""
        return self._first(
            rows.proposal_from_row,
            "SELECT * FROM proposals WHERE digest = :digest "
            "ORDER BY outcome != 'new', generation, position LIMIT 1",
            digest=digest,
        )

    def digests(self, prefix: str = "") -> tuple[str, ...]:
        """The digests proposed that begin with ``prefix`` (hexadecimal), sorted."""
        found = self._database.query(
            "SELECT DISTINCT digest FROM proposals WHERE digest GLOB :prefix || '*' "
            "ORDER BY digest",
            prefix=prefix,
        )
        return tuple(row["digest"] for row in found)

    def evaluation(self, key: str, repeat: int = 0) -> Evaluation | None:
        """What was recorded for one training, or None: what replay asks."""
        return self._first(
            rows.evaluation_from_row,
            "SELECT * FROM evaluations WHERE key = :key AND repeat = :repeat",
            key=key,
            repeat=repeat,
        )

    def evaluations(self) -> dict[tuple[str, int], Evaluation]:
        """Every training that ended, by resolved digest and repeat, both ascending."""
        found = self._database.query("SELECT * FROM evaluations ORDER BY key, repeat")
        return {
            (row["key"], row["repeat"]): self._read(rows.evaluation_from_row, row) for row in found
        }

    def outcomes(self) -> tuple[tuple[str, bool, dict[str, float]], ...]:
        """Resolved digest, whether it ended well, objectives: of every training, without the rest.

        What a front needs, many times quicker than ``evaluations``.
        """
        return self._all(
            rows.outcome_from_row,
            "SELECT key, status, objectives FROM evaluations ORDER BY key, repeat",
        )

    def generations(self) -> tuple[Generation, ...]:
        """The generations that are complete, in order."""
        return self._all(rows.generation_from_row, "SELECT * FROM generations ORDER BY number")

    def counts(self) -> Counts:
        """What became of all proposals so far."""
        found = self._database.query(
            "SELECT (SELECT count(*) FROM proposals) AS proposed, "
            "(SELECT count(*) FROM proposals WHERE outcome = 'replayed') AS replayed, "
            "(SELECT count(*) FROM proposals WHERE outcome = 'rejected') AS rejected, "
            "(SELECT count(DISTINCT key) FROM evaluations WHERE status = 'failed') AS failed, "
            "(SELECT count(*) FROM (SELECT key FROM evaluations GROUP BY key "
            " HAVING count(*) >= (SELECT repeats FROM run) OR sum(status = 'failed'))) AS evaluated"
        )
        return Counts(**found[0])

    def summary(self) -> RunSummary:
        """One line about the run."""
        with self.snapshot():
            setup, sessions, generations = self.setup, self.sessions(), self.generations()
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
                generations_done=len(generations),
                generations=setup.generations,
                counts=self.counts(),
                best_accuracy=generations[-1].best_accuracy if generations else None,
                hypervolume=generations[-1].hypervolume if generations else None,
            )

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """All that is read inside is of one moment."""
        with self._database.snapshot():
            yield

    def close(self) -> None:
        """Let go of the file; calling it again does nothing."""
        self._database.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _row(self) -> dict[str, Any]:
        found = self._database.query("SELECT * FROM run")
        if not found:
            raise RunError(f"{self.folder}: holds no run; begin a new one with `nas search`.")
        return found[0]

    def _all(self, reader: Callable[[rows.Row], T], sql: str, **values: Any) -> tuple[T, ...]:
        return tuple(self._read(reader, row) for row in self._database.query(sql, **values))

    def _first(self, reader: Callable[[rows.Row], T], sql: str, **values: Any) -> T | None:
        found = self._database.query(sql, **values)
        return self._read(reader, found[0]) if found else None

    def _read(self, reader: Callable[[rows.Row], T], row: rows.Row) -> T:
        """A row that cannot be read is a damaged file, not a fault of ours."""
        try:
            return reader(row)
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError, NasError) as error:
            raise RunError(
                f"{self.folder / DATABASE_FILE}: holds a record that cannot be read "
                f"({type(error).__name__}: {error}). Restore it from a copy."
            ) from error


def open_run(folder: Path) -> Run:
    """Open a run to read, also while another process writes it.

    Raises:
        RunError: there is no run, or its database is damaged, foreign or of a later nas.
    """
    path = folder / DATABASE_FILE
    if not path.is_file():
        raise RunError(f"{folder}: is no run folder; expected one that holds {DATABASE_FILE}.")
    return Run(folder, Database.open_to_read(path))
