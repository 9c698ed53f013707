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
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from nas.common.errors import RunError

APPLICATION_ID: Final = 0x6E61731A  # "nas" and a control character; marks the file as a run's
VERSION: Final = 7

TABLES: Final = (
    """CREATE TABLE run (  -- one row
    id INTEGER PRIMARY KEY CHECK (id = 1),
    status TEXT NOT NULL CHECK (status IN ('running', 'stopped', 'finished')),
    note TEXT NOT NULL DEFAULT '',  -- why it ended early
    started TEXT NOT NULL,
    finished TEXT,
    record TEXT NOT NULL            -- RunSetup: all that determines the results
) STRICT""",
    """CREATE TABLE sessions (  -- the processes that began or resumed the run
    id INTEGER PRIMARY KEY,
    record TEXT NOT NULL            -- PastSession
) STRICT""",
    """CREATE TABLE proposals (  -- every genome that was drawn; generation: number / population
    number INTEGER NOT NULL AS (record ->> 'number') STORED,    -- of the training it is drawn for
    attempt INTEGER NOT NULL AS (record ->> 'attempt') STORED,  -- counts the draws for the number
    digest TEXT NOT NULL AS (record ->> 'digest') STORED,       -- of the normal form
    key TEXT AS (record ->> 'key') STORED,                      -- digest at the task's sizes
    verdict TEXT NOT NULL AS (record ->> 'verdict') STORED,     -- new, repeated, replayed, rejected
    recorded TEXT NOT NULL,
    record TEXT NOT NULL,           -- Proposal
    UNIQUE (number, attempt)
) STRICT""",
    "CREATE INDEX proposals_by_digest ON proposals (digest)",
    "CREATE UNIQUE INDEX proposals_by_key ON proposals (key) WHERE verdict = 'new'",
    """CREATE TABLE trainings (  -- every finished training, of the search and of later commands
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
) STRICT""",
    """CREATE TABLE generations (  -- the state of the run after each generation
    number INTEGER NOT NULL UNIQUE AS (record ->> 'number') STORED,
    record TEXT NOT NULL            -- Generation, without its counts
) STRICT""",
    """CREATE TABLE estimates (  -- estimates of each mechanism after the last generation
    key TEXT NOT NULL UNIQUE AS (record ->> 'key') STORED,
    record TEXT NOT NULL            -- Estimate
) STRICT""",
    """CREATE TABLE answers (  -- results of `nas explain` about this run's mechanisms
    question TEXT PRIMARY KEY,      -- a digest of mechanisms and tasks; asked again, it is replaced
    recorded TEXT NOT NULL,
    record TEXT NOT NULL            -- the JSON that the command prints
) STRICT""",
    """CREATE TABLE incidents (  -- failures of workers; no result depends on them
    id INTEGER PRIMARY KEY,
    recorded TEXT NOT NULL,
    record TEXT NOT NULL            -- Incident
) STRICT""",
)

WAIT_SECONDS: Final = 30.0  # for another process that has locked the file
# What an error of SQLite means, by its primary result code.
_MEANINGS: Final = {
    sqlite3.SQLITE_BUSY: "another process has locked it; end that process, then try again",
    sqlite3.SQLITE_CONSTRAINT: "refuses a record; does another process write this run? End it",
    **dict.fromkeys(
        (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB),
        "is damaged or no run database; restore it from a copy",
    ),
    **dict.fromkeys(
        (
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_PERM,
            sqlite3.SQLITE_READONLY,
        ),
        "cannot be used; check that you may write to its folder and that its disk is not full",
    ),
}


class Database(AbstractContextManager["Database"]):
    """An open run database. Statements have named parameters; rows are dicts.

    All methods raise RunError if SQLite fails. Close it, or use it as a context manager.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, *, is_writer: bool) -> None:
        self._path = path
        self._connection = connection
        self._is_writer = is_writer
        connection.row_factory = sqlite3.Row

    @classmethod
    def create(cls, path: Path) -> Database:
        """Create a database with all tables. The file must not exist."""
        with _opened(path, "rwc") as connection:
            database = cls(path, connection, is_writer=True)
            with database.transaction():
                for statement in TABLES:
                    database.execute(statement)
                database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                database.execute(f"PRAGMA user_version = {VERSION}")
        return database

    @classmethod
    def open_to_write(cls, path: Path, *, is_exclusive: bool = False) -> Database:
        """Open a database for writing. Other processes may use it unless ``is_exclusive``."""
        with _opened(path) as connection:
            _check(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")
            if is_exclusive:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                connection.execute("BEGIN IMMEDIATE")  # the lock outlasts the transaction
                connection.execute("COMMIT")
        return cls(path, connection, is_writer=True)

    @classmethod
    def open_to_read(cls, path: Path) -> Database:
        """Open a database for reading, even while another process writes it.

        The file is opened for writing where that is permitted, since SQLite rolls back an
        incomplete transaction of a killed process.
        """
        with _opened(path) as connection:
            connection.execute("PRAGMA query_only = ON")
            _check(connection, path)
        return cls(path, connection, is_writer=False)

    def query(self, sql: str, /, **values: Any) -> list[dict[str, Any]]:
        """Return the rows of a SELECT statement."""
        with _explained(self._path):
            return [dict(row) for row in self._connection.execute(sql, values)]

    def execute(self, sql: str, /, **values: Any) -> int:
        """Run one statement, and return the number of rows that it changed.

        Outside a transaction its effect is on the disk on return.
        """
        with _explained(self._path):
            return self._connection.execute(sql, values).rowcount

    def insert(
        self,
        table: str,
        row: Mapping[str, Any],
        on_conflict: Literal["ABORT", "IGNORE", "REPLACE"] = "ABORT",
    ) -> None:
        """Insert one row, given by column; ABORT raises RunError if the table has its key."""
        columns, places = ", ".join(row), ", ".join(f":{name}" for name in row)
        sql = f"INSERT OR {on_conflict} INTO {table} ({columns}) VALUES ({places})"  # noqa: S608
        self.execute(sql, **row)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the statements of a ``with`` block as one transaction, all or none."""
        with _explained(self._path):
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all queries of a ``with`` block see the same state of the database."""
        with _explained(self._path):
            is_outermost = not self._connection.in_transaction
            if is_outermost:
                self._connection.execute("BEGIN")
            try:
                yield
            finally:
                if is_outermost and self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file. A second call does nothing.

        A writer moves the write-ahead log into the file, unless another process uses the log.
        """
        with contextlib.suppress(sqlite3.Error):
            if self._is_writer:
                self._connection.execute("PRAGMA busy_timeout = 0")
                self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def _opened(path: Path, mode: Literal["rw", "rwc"] = "rw") -> Iterator[sqlite3.Connection]:
    """Connect, and close the connection after an exception only; "rwc" creates the file."""
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    with _explained(path), contextlib.ExitStack() as on_error:
        # isolation_level None: Python starts no transactions; all are explicit here.
        connection = sqlite3.connect(uri, uri=True, timeout=WAIT_SECONDS, isolation_level=None)
        on_error.callback(connection.close)
        yield connection
        on_error.pop_all()


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise RunError unless the file is a run database with the present schema."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise RunError(f"{path}: is no run database; expected one that `nas search` wrote.")
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version != VERSION:
        what = "Update nas" if version > VERSION else "Use the nas that wrote it"
        raise RunError(
            f"{path}: has schema {version}; this nas reads schema {VERSION} alone. {what} "
            "(its table sessions names the version), or start a new run."
        )


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into RunErrors of one sentence."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        # Errors that Python itself raises have no code.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        meaning = _MEANINGS.get(code, "cannot be read or written by SQLite")
        raise RunError(f"{path}: {meaning} ({error}).") from error
