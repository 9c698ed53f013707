"""A SQLite file, opened for writing or reading. No other module imports sqlite3.

Writing uses a write-ahead log with ``synchronous = FULL``: a statement outside a transaction is on
the disk when it returns, and readers are never blocked. A writer that closes the database removes
the log, so that the file can be read in a read-only folder.

The column ``record`` of a table holds a dataclass as JSON (``nas.store.records``,
``nas.evaluation.trial``), from which the columns that queries use are computed. A new field that
changes results, or that older records lack, needs a new ``VERSION``; others are refused.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias
from urllib.parse import quote

from nas.common.errors import NasError, RunError
from nas.store.records import T, from_json, to_json

Access: TypeAlias = Literal["read", "write", "exclusive"]

APPLICATION_ID: Final = 0x6E61731A  # "nas" and a control character; marks the file as a run's
VERSION: Final = 8

SCHEMA: Final = """
CREATE TABLE run (  -- one row
    record TEXT NOT NULL            -- RunSetup: all that determines the results
) STRICT;
CREATE TABLE sessions (  -- the processes that began or resumed the run
    started TEXT NOT NULL UNIQUE AS (record ->> 'started') STORED,
    record TEXT NOT NULL            -- Session
) STRICT;
CREATE TABLE proposals (  -- every genome that was drawn; generation: number / population
    number INTEGER NOT NULL AS (record ->> 'number') STORED,    -- of the training it is drawn for
    attempt INTEGER NOT NULL AS (record ->> 'attempt') STORED,  -- counts the draws for the number
    digest TEXT NOT NULL AS (record ->> 'digest') STORED,       -- of the normal form
    key TEXT AS (record ->> 'key') STORED,                      -- digest at the task's sizes
    verdict TEXT NOT NULL AS (record ->> 'verdict') STORED,     -- new, repeated, replayed, rejected
    recorded TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    record TEXT NOT NULL,           -- Proposal
    UNIQUE (number, attempt)
) STRICT;
CREATE INDEX proposals_by_digest ON proposals (digest);
CREATE UNIQUE INDEX proposals_by_key ON proposals (key) WHERE verdict = 'new';
CREATE TABLE trainings (  -- every finished training, of the search and of later commands
    purpose TEXT NOT NULL AS (record ->> 'purpose') STORED,     -- search, target, confirm, ...
    stage TEXT NOT NULL AS (record ->> 'stage') STORED,         -- of a confirmation
    task TEXT NOT NULL AS (record ->> 'task') STORED,           -- fingerprint of task and data
    key TEXT NOT NULL AS (record ->> 'key') STORED,             -- digest at the task's sizes
    repeat INTEGER NOT NULL AS (record ->> 'repeat') STORED,
    seed INTEGER NOT NULL AS (record ->> '$.evaluation.seed') STORED,
    status TEXT NOT NULL AS (record ->> '$.evaluation.status') STORED,  -- ok, stopped, failed
    reason TEXT AS (record ->> '$.evaluation.reason') STORED,   -- of a failure
    record TEXT NOT NULL,           -- Training
    UNIQUE (purpose, key, repeat, stage, task, seed)
) STRICT;
CREATE TABLE generations (  -- the state of the run after each generation
    number INTEGER NOT NULL UNIQUE AS (record ->> 'number') STORED,
    record TEXT NOT NULL            -- Generation
) STRICT;
CREATE TABLE estimates (  -- estimates of each mechanism after the last generation
    key TEXT NOT NULL UNIQUE AS (record ->> 'key') STORED,
    record TEXT NOT NULL            -- Estimate
) STRICT;
CREATE TABLE answers (  -- results of `nas explain` about this run's mechanisms
    question TEXT PRIMARY KEY,      -- a digest of mechanisms and tasks; asked again, it is replaced
    record TEXT NOT NULL            -- the JSON that the command prints
) STRICT;
CREATE TABLE incidents (  -- failures of workers; no result depends on them
    id INTEGER PRIMARY KEY,
    recorded TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    record TEXT NOT NULL            -- Incident
) STRICT;
"""

WAIT_SECONDS: Final = 30.0  # for another process that has locked the file
# What an error of SQLite means, by its primary result code.
_DAMAGED: Final = "is damaged or no run database; restore it from a copy"
_UNUSABLE: Final = "cannot be used; check that you may write to its folder and its disk is not full"
_MEANINGS: Final = {
    sqlite3.SQLITE_BUSY: "another process has locked it; end that process, then try again",
    sqlite3.SQLITE_CONSTRAINT: "refuses a record; does another process write this run? End it",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}


class Database:
    """An open run database. Statements have named parameters; rows are tuples.

    All methods raise RunError if SQLite fails or a record is damaged. Close it, or use ``with``.
    """

    def __init__(self, path: Path, access: Access = "read") -> None:
        """Open a file; with ``access="exclusive"`` no other process can use it meanwhile.

        A reader opens the file for writing where that is permitted, since SQLite rolls back an
        incomplete transaction of a killed process. It may read while another process writes.
        """
        self.path = path
        self._is_writer = access != "read"
        with _explained(path), contextlib.ExitStack() as on_error:
            self._connection = _connect(path, "rw")
            on_error.callback(self._connection.close)
            self._check()
            if self._is_writer:
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute("PRAGMA fullfsync = ON")
            else:
                self._connection.execute("PRAGMA query_only = ON")
            if access == "exclusive":
                self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._connection.execute("BEGIN IMMEDIATE")  # the lock outlasts the transaction
                self._connection.execute("COMMIT")
            on_error.pop_all()

    @classmethod
    def create(cls, path: Path, access: Access = "write") -> Self:
        """Create and open a database with empty tables. The file must not exist."""
        marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
        with _explained(path), contextlib.closing(_connect(path, "rwc")) as connection:
            connection.executescript(f"BEGIN; {SCHEMA} {marks} COMMIT;")
        return cls(path, access)

    def query(self, sql: str, /, **values: Any) -> list[Any]:
        """Return the rows of a SELECT statement."""
        with _explained(self.path):
            return self._connection.execute(sql, values).fetchall()

    def records(self, kind: type[T], source: str, /, **values: Any) -> tuple[T, ...]:
        """Return the records of a table, with a condition and an order in SQL."""
        rows = self.query(f"SELECT record FROM {source}", **values)  # noqa: S608
        try:
            return tuple(from_json(kind, text) for (text,) in rows)
        except (ValueError, NasError) as error:
            raise RunError(
                f"{self.path}: holds a record that cannot be read ({error}). "
                "Restore it from a copy."
            ) from error

    def execute(self, sql: str, /, **values: Any) -> int:
        """Run one statement, and return the number of rows that it changed."""
        with _explained(self.path):
            return self._connection.execute(sql, values).rowcount

    def insert(
        self,
        table: str,
        record: object,
        on_conflict: Literal["ABORT", "REPLACE"] = "ABORT",
        **columns: str,
    ) -> None:
        """Insert a record; ABORT raises RunError if the table has one with the same key."""
        row = {"record": to_json(record), **columns}
        names, places = ", ".join(row), ", ".join(f":{name}" for name in row)
        sql = f"INSERT OR {on_conflict} INTO {table} ({names}) VALUES ({places})"  # noqa: S608
        self.execute(sql, **row)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the statements of a ``with`` block as one transaction, all or none."""
        with _explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            with self._connection:  # commits, or rolls back after an exception
                yield

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all queries of a ``with`` block see the same state of the database."""
        with _explained(self.path), contextlib.ExitStack() as stack:
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN")
                stack.enter_context(self._connection)
            yield

    def close(self) -> None:
        """Close the file. A second call does nothing.

        A writer moves the write-ahead log into the file, unless another process uses the log.
        """
        with contextlib.suppress(sqlite3.Error):
            if self._is_writer:
                self._connection.execute("PRAGMA busy_timeout = 0")
                self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        """Raise RunError unless the file is a run database with the present schema."""
        ((application,),) = self.query("PRAGMA application_id")
        if application != APPLICATION_ID:
            raise RunError(
                f"{self.path}: is no run database; expected one that `nas search` wrote."
            )
        ((version,),) = self.query("PRAGMA user_version")
        if version != VERSION:
            what = "Update nas" if version > VERSION else "Use the nas that wrote it"
            raise RunError(
                f"{self.path}: has schema {version}; this nas reads schema {VERSION} alone. {what} "
                "(its table sessions names the version), or start a new run."
            )


def _connect(path: Path, mode: Literal["rw", "rwc"]) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    # isolation_level None: Python starts no transactions; all are explicit here.
    return sqlite3.connect(uri, uri=True, timeout=WAIT_SECONDS, isolation_level=None)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        # Errors that Python itself raises have no code.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        meaning = _MEANINGS.get(code, _UNUSABLE)
        raise RunError(f"{path}: {meaning} ({error}).") from error
