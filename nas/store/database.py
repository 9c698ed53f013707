"""A SQLite file, opened for writing or reading. No other module imports sqlite3.

Writing uses a write-ahead log with ``synchronous = FULL``: a statement outside a transaction is on
the disk when it returns, and readers are never blocked. A writer that closes the database removes
the log, so that the file can be read in a read-only folder.
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
from nas.store import schema

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
                for statement in schema.TABLES:
                    database.execute(statement)
                database.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
                database.execute(f"PRAGMA user_version = {schema.VERSION}")
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
    if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
        raise RunError(f"{path}: is no run database; expected one that `nas search` wrote.")
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version != schema.VERSION:
        what = "Update nas" if version > schema.VERSION else "Use the nas that wrote it"
        raise RunError(
            f"{path}: has schema {version}; this nas reads schema {schema.VERSION} alone. {what} "
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
