"""Fuzzer inputs that are run databases: changed values, bytes, schema and write-ahead log."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import sqlite3  # noqa: TID251 - to damage databases
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from benchmarks.fuzzing.values import (
    MARK,
    TEXTS,
    Rng,
    edit_bytes,
    edit_text,
    hostile,
    mutate,
    nudge,
)
from nas.report.front import Front, runs_answer
from nas.report.page.writer import page
from nas.report.run_view import RunView
from nas.report.show import examine
from nas.searching.checking import check_run
from nas.searching.front_file import run_answer
from nas.store import (
    find_proposal,
    lineage,
    list_runs,
    open_run,
    open_writer,
)
from nas.store.sources import resolve
from nas.store.writer import checkpoint_wal
from tests.recorded_run import record_run

Work = Callable[[], object]
TABLES: Final = (
    "run", "sessions", "proposals", "trainings", "generations", "estimates", "answers", "incidents"
)  # fmt: skip


def database(rng: Rng, folder: Path) -> Work:
    """Return a function that reads a run with changed values, deleted rows or damaged bytes."""
    run_folder = copy_run(folder)
    path = run_folder / "run.sqlite"
    match rng.integers(10):
        case 0 | 1:
            path.write_bytes(edit_bytes(path.read_bytes(), rng))
        case 2:
            path.with_name("run.sqlite-wal").write_bytes(rng.bytes(int(rng.integers(1, 9000))))
        case _:
            damage(path, rng)
    return partial(_READERS[rng.integers(len(_READERS))], run_folder)


def report(rng: Rng, folder: Path) -> Work:
    """Return a function that writes the page of a run with hostile texts, and checks escapes."""
    run_folder = copy_run(folder)
    with contextlib.closing(
        sqlite3.connect(run_folder / "run.sqlite", isolation_level=None)
    ) as connection:
        for _ in range(int(rng.integers(1, 6))):
            _corrupt(connection, rng, only_text=True)
    return partial(_write_page, run_folder)


def copy_run(folder: Path) -> Path:
    """Copy a complete run to ``runs/example``; return its folder."""
    run_folder = folder / "runs" / "example"
    shutil.rmtree(run_folder, ignore_errors=True)
    shutil.copytree(_run(), run_folder)
    return run_folder


@cache
def _run() -> Path:
    """Return the folder of a finished run with a confirmation and a front.json."""
    root = Path(mkdtemp(prefix="nas-fuzz-"))
    folder = record_run(root, generations=1)
    with open_writer(folder, None) as writer:
        member = writer.run.front()[0]
        fresh = dataclasses.replace(member.trainings[0], purpose="confirm", stage="search")
        writer.record_training(fresh)
    return folder


def damage(path: Path, rng: Rng) -> None:
    """Change values, rows or the schema by SQL, ignoring the schema's constraints."""
    if rng.random() < 0.5:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ' STRICT', '')")
            if rng.random() < 0.1:
                invalid = "CAST(x'ff' || sql AS TEXT)"
                connection.execute(
                    f"UPDATE sqlite_schema SET sql = {invalid} WHERE name = 'trainings'"
                )
            if rng.random() < 0.05:
                text = str(hostile(rng)).encode(errors="replace").decode()
                connection.execute("UPDATE sqlite_schema SET sql = ?", (text,))
    connection = sqlite3.connect(path, isolation_level=None)
    with contextlib.closing(connection), contextlib.suppress(sqlite3.Error, UnicodeError):
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for _ in range(int(rng.integers(1, 4))):
            _corrupt(connection, rng)


def _corrupt(connection: sqlite3.Connection, rng: Rng, *, only_text: bool = False) -> None:
    """Change a value, delete the rows of a table, or drop a table."""
    table = TABLES[rng.integers(len(TABLES))]
    columns = [(row[1], row[2]) for row in connection.execute(f"PRAGMA table_info({table})")]
    rows = connection.execute(f"SELECT * FROM {table}").fetchall()
    if not rows:
        return
    if not only_text and rng.random() < 0.15:
        statement = [f"DELETE FROM {table}", f"DROP TABLE {table}"][rng.integers(2)]
        connection.execute(statement)
        return
    at, row = int(rng.integers(len(columns))), rows[rng.integers(len(rows))]
    name, kind = columns[at]
    if only_text and kind != "TEXT":
        return
    where = " AND ".join(f"{other} IS ?" for other, _ in columns)
    value = _replacement(row[at], rng, only_text=only_text)
    with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeError):
        if value == b"text":
            connection.execute(
                f"UPDATE {table} SET {name} = CAST(x'ff80' AS TEXT) WHERE {where}", row
            )
        else:
            connection.execute(f"UPDATE {table} SET {name} = ? WHERE {where}", (value, *row))


def _replacement(value: Any, rng: Rng, *, only_text: bool) -> Any:
    """Return a replacement of a value; mostly JSON for JSON."""
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        data = json.loads(value)
        replacement = mutate(data, rng)
        if only_text:
            replacement = (
                data | {str(hostile(rng)): TEXTS[rng.integers(len(TEXTS))]}
                if isinstance(data, dict)
                else data
            )
        if rng.random() < 0.9:
            return json.dumps(replacement)
    if only_text:
        return TEXTS[rng.integers(len(TEXTS))]
    match rng.integers(6):
        case 0:
            return None
        case 1:
            return b"text"
        case 2:
            return rng.bytes(8)
        case 3:
            return edit_text(value, rng) if isinstance(value, str) else nudge(value, rng)
    value = hostile(rng)
    return json.dumps(value, default=str) if isinstance(value, list | dict) else value


def _read_front(run_folder: Path) -> None:
    with open_run(run_folder) as run:
        json.dumps(Front(RunView.read(run)).to_dict(), allow_nan=False)


def _read_list(run_folder: Path) -> None:
    runs_answer(*list_runs(run_folder.parent))


def _read_lineages(run_folder: Path) -> None:
    with open_run(run_folder) as run:
        for digest in run.digests()[:3]:
            lineage(run, find_proposal(run, digest).digest)
        for name in ("best", "knee", "cheapest"):
            find_proposal(run, name)


def _read_best(run_folder: Path) -> None:
    json.dumps(examine(resolve(f"{run_folder}/best")).to_dict(), allow_nan=False)


def _read_all(run_folder: Path) -> None:
    with open_run(run_folder) as run:
        for read in (run.proposals, run.trainings, run.sessions, run.summary):
            read()


def _checkpoint(run_folder: Path) -> None:
    checkpoint_wal(run_folder)
    with open_run(run_folder) as run:
        run_answer(run)


def _write_page(run_folder: Path) -> None:
    with open_run(run_folder) as run:
        text = page([RunView.read(run, str(run_folder), run.name)])
    assert f"<{MARK}" not in text, "a text of the record is not escaped in the page"
    assert f"<script>{MARK}" not in text, "a text of the record is a script in the page"
    assert "<img src=x" not in text, "a text of the record is an element of the page"


_READERS: Final = (
    _read_front,
    _read_list,
    _read_lineages,
    _read_best,
    _read_all,
    _checkpoint,
    _write_page,
    check_run,
)
