"""A SQLite file, opened for writing or reading. No other module imports sqlite3.

Writing uses a write-ahead log with ``synchronous = FULL``: a statement outside a transaction is on
the disk when it returns, and readers are never blocked. When a writer closes a database, the log is
written into the file and removed. The file is then complete by itself, and can be read in a
read-only folder. Errors of SQLite are raised as RunErrors of one sentence.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from nas.common.errors import RunError
from nas.common.reading import open_regular
from nas.store import schema

JOURNAL_MAGIC: Final = bytes.fromhex("d9d505f920a163d7")  # https://sqlite.org/fileformat.html, 3
WAIT_SECONDS: Final = 10.0
WAITS: Final = 360  # number of periods of WAIT_SECONDS to wait until another process unlocks a file
MAX_VALUE: Final = 2**24  # bytes of a value or row; the largest are answers of `nas explain`
DAMAGED: Final = "Could not decode"  # begins an OperationalError about text that is not UTF-8


class Database:
    """An open run database. Statements have named parameters; rows are dicts.

    All methods raise RunError if SQLite fails.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        connection.row_factory = sqlite3.Row

    @classmethod
    def create(cls, path: Path) -> Database:
        """Create a database with all tables. The file must not exist."""
        with _opened(path, "rwc") as connection:
            database = cls(path, connection)
            with database.transaction():
                for statement in schema.TABLES:
                    database.execute(statement)
                database.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
                database.execute(f"PRAGMA user_version = {schema.VERSION}")
        return database

    @classmethod
    def open_to_write(cls, path: Path) -> Database:
        """Open and check a database for writing. The caller must hold the lock of the run."""
        with _opened(path, "rw") as connection:
            _check(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")
        return cls(path, connection)

    @classmethod
    @contextlib.contextmanager
    def appending(cls, path: Path) -> Iterator[Database]:
        """Return a context manager of a database for adding records without the lock of the run.

        Another process may write the same database at the same time.
        """
        with _opened(path, "rw") as connection:
            _check(connection, path)
            connection.execute("PRAGMA synchronous = FULL")
        with contextlib.closing(cls(path, connection)) as database:
            yield database

    @classmethod
    def open_to_read(cls, path: Path) -> Database:
        """Open and check a database for reading, even while another process writes it.

        The file is not changed, except that SQLite rolls back an incomplete transaction of a killed
        process.
        """
        with _opened(path, "ro") as connection:
            try:
                _check(connection, path)
            except sqlite3.OperationalError as error:
                # Errors that Python itself raises, about invalid text, have no such code.
                code = getattr(error, "sqlite_errorcode", None)
                if code != sqlite3.SQLITE_READONLY_ROLLBACK:
                    raise
                with _opened(path, "rw") as rollback:
                    _check(rollback, path)
                    rollback.close()
                _check(connection, path)
        return cls(path, connection)

    def query(self, sql: str, /, **values: Any) -> list[dict[str, Any]]:
        """Return the rows of a SELECT statement."""
        with _explained(self._path):
            return [dict(row) for row in self._connection.execute(sql, values)]

    def execute(self, sql: str, /, **values: Any) -> None:
        """Run one statement. Outside a transaction its effect is on the disk on return."""
        with _explained(self._path):
            self._execute_with_retries(sql, values)

    def insert(self, table: str, row: Mapping[str, Any], *, is_new: bool = True) -> None:
        """Insert one row. The names of table and columns must not come from a user.

        Args:
            row: values by name of the column.
            is_new: if False and a row with the same key exists, nothing is inserted.
        """
        columns = ", ".join(row)
        places = ", ".join(f":{name}" for name in row)
        verb = "INSERT" if is_new else "INSERT OR IGNORE"
        self.execute(f"{verb} INTO {table} ({columns}) VALUES ({places})", **row)

    def insert_all(self, table: str, new: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows of the same columns, in a transaction of the caller, see ``insert``."""
        if new:
            columns, places = ", ".join(new[0]), ", ".join(f":{name}" for name in new[0])
            with _explained(self._path):
                self._connection.executemany(
                    f"INSERT INTO {table} ({columns}) VALUES ({places})",  # noqa: S608
                    new,
                )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Return a context manager that runs its statements as one transaction.

        If an exception is raised, none of them takes effect.
        """
        with _explained(self._path):
            self._execute_with_retries("BEGIN IMMEDIATE", {})
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Return a context manager in which all queries see the same state of the database.

        Another process may write the database at the same time.
        """
        with _explained(self._path):
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("ROLLBACK")

    def _execute_with_retries(self, sql: str, values: Mapping[str, Any]) -> None:
        """Execute a statement. While another process locks the file, wait and log one warning."""
        for attempt in range(WAITS):
            try:
                self._connection.execute(sql, values)
                return
            except sqlite3.OperationalError as error:
                is_last = attempt == WAITS - 1
                if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY or is_last:
                    raise
                if attempt == 0:
                    logging.getLogger("nas").warning(
                        "%s: another process has locked it; waiting until it lets go.", self._path
                    )

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database file, unless a reader uses the log."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE")

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._connection.close()


@contextlib.contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """Return a context manager of a new connection, which is closed only after an exception.

    Args:
        mode: "ro" for reading, "rw" for writing, "rwc" for creating the file.
    """
    if mode != "rwc":
        _check_files(path)
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    with _explained(path), contextlib.ExitStack() as on_error:
        # isolation_level None: Python starts no transactions; all are explicit here.
        connection = sqlite3.connect(uri, uri=True, timeout=WAIT_SECONDS, isolation_level=None)
        on_error.callback(connection.close)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
        yield connection
        on_error.pop_all()


def _check_files(path: Path) -> None:
    """Raise RunError if SQLite would block on a file, follow a link, or delete another file.

    The end of a journal may name a super-journal, which SQLite deletes on opening the database.
    Only transactions over several databases have one, which nas never uses.
    """
    files = [path.with_name(f"{path.name}{suffix}") for suffix in ("", "-wal", "-shm", "-journal")]
    for file in files:
        # Opening and closing a database would release the locks that SQLite holds on it.
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(file.lstat().st_mode):
                raise RunError(f"{file}: is no regular file; the run cannot be read.")
    with contextlib.suppress(OSError), open_regular(files[-1], follow=False) as journal:
        journal.seek(-len(JOURNAL_MAGIC), os.SEEK_END)
        if journal.read() == JOURNAL_MAGIC:
            raise RunError(
                f"{files[-1]}: names a file that SQLite would delete; remove the journal."
            )


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise an error unless the file is an undamaged run database with the present schema.

    Its tables are compared before any of them is read, because a view, a trigger, a generated
    column or a constraint of a foreign table could run without end.
    """
    if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
        raise RunError(f"{path}: is no run database; expected one that `nas search` wrote.")
    statements = {
        _bare(sql): kind
        for kind, sql in connection.execute(
            "SELECT CAST(type AS TEXT), CAST(sql AS TEXT) FROM sqlite_schema WHERE sql IS NOT NULL"
        )
    }
    known = {*map(_bare, schema.TABLES)}
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version != schema.VERSION:
        writer = _writer(connection) if _bare(schema.SESSIONS) in statements else "another nas"
        what = "Update nas" if version > schema.VERSION else f"Use {writer}, or start a new run"
        raise RunError(
            f"{path}: has schema {version}, written by {writer}; this nas reads schema "
            f"{schema.VERSION} alone. {what}."
        )
    if not known <= statements.keys():
        raise sqlite3.DatabaseError("its tables differ from those that nas creates")
    if added := [kind for sql, kind in statements.items() if sql not in known]:
        raise sqlite3.DatabaseError(f"it holds a {added[0]}, which nas never makes")
    # In strict tables, quick_check finds every value of a wrong type.
    fault = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if fault != "ok":
        raise sqlite3.DatabaseError(" ".join(str(fault).replace("*", "").split()))


def _writer(connection: sqlite3.Connection) -> str:
    try:
        versions = connection.execute("SELECT versions FROM sessions ORDER BY id DESC").fetchone()
        return f"nas {json.loads(versions[0])['nas']}"
    except (sqlite3.Error, ValueError, LookupError, TypeError):
        return "another nas"


def _bare(statement: str) -> str:
    return " ".join(re.sub("--[^\n]*", "", statement).split())


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Return a context manager that turns errors of SQLite into RunErrors."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.IntegrityError as error:
        raise RunError(
            f"{path}: refuses a record ({error}). Does another process write this run? End one of "
            "them, then resume."
        ) from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            raise RunError(
                f"{path}: another process has locked it; end that process, then try again."
            ) from error
        if isinstance(error, sqlite3.OperationalError) and DAMAGED not in str(error):
            raise RunError(
                f"{path}: cannot be used ({error}). Check that the folder exists, that you may "
                "write to it and that its disk is not full."
            ) from error
        raise RunError(
            f"{path}: is damaged or no run database ({error}). Restore it from a copy, or start "
            "a new run."
        ) from error
