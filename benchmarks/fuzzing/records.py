"""Kinds of input that are a run's record: values of its database, its bytes, schema and log."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import sqlite3  # noqa: TID251 - to damage a file as no code of ours would
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from benchmarks.fuzzing.values import (
    MARK,
    TEXTS,
    Rng,
    edited,
    edited_bytes,
    hostile,
    mutated,
    nudged,
)
from nas.report.front import Front
from nas.report.page.writer import page
from nas.report.run_view import RunView
from nas.report.runs import runs_answer
from nas.report.show import examine
from nas.searching.checking import check_run
from nas.searching.front_file import run_answer
from nas.store import (
    find_proposal,
    front,
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
    """A run database whose values are others, whose rows are lost, whose bytes are damaged."""
    own = copy_run(folder)
    path = own / "run.sqlite"
    match rng.integers(10):
        case 0 | 1:
            path.write_bytes(edited_bytes(path.read_bytes(), rng))
        case 2:
            path.with_name("run.sqlite-wal").write_bytes(rng.bytes(int(rng.integers(1, 9000))))
        case _:
            _damage(path, rng)
    return partial(_READERS[rng.integers(len(_READERS))], own)


def report(rng: Rng, folder: Path) -> Work:
    """A record whose texts are hostile, shown as a page: nothing of them is markup there."""
    own = copy_run(folder)
    with contextlib.closing(sqlite3.connect(own / "run.sqlite", isolation_level=None)) as opened:
        for _ in range(int(rng.integers(1, 6))):
            _spoil(opened, rng, only_text=True)
    return partial(_page, own)


def copy_run(folder: Path) -> Path:
    """A whole run in ``runs/example``."""
    own = folder / "runs" / "example"
    shutil.rmtree(own, ignore_errors=True)
    shutil.copytree(_run(), own)
    return own


@cache
def _run() -> Path:
    """A finished run with a confirmation and a front.json; of ours alone, not to be written to."""
    root = Path(mkdtemp(prefix="nas-fuzz-"))
    own = record_run(root, generations=1)
    with open_writer(own, None) as writer:
        member = front(writer.run)[0]
        fresh = dataclasses.replace(member.trainings[0], purpose="confirm", stage="search")
        writer.record_training(fresh)
    return own


def _damage(path: Path, rng: Rng) -> None:
    """Change values, rows or the schema by SQL, against all that the schema forbids."""
    if rng.random() < 0.5:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as opened:
            opened.execute("PRAGMA writable_schema = ON")
            opened.execute("UPDATE sqlite_schema SET sql = replace(sql, ' STRICT', '')")
            if rng.random() < 0.1:
                spoilt = "CAST(x'ff' || sql AS TEXT)"
                opened.execute(f"UPDATE sqlite_schema SET sql = {spoilt} WHERE name = 'trainings'")
            if rng.random() < 0.05:
                text = str(hostile(rng)).encode(errors="replace").decode()
                opened.execute("UPDATE sqlite_schema SET sql = ?", (text,))
    opened = sqlite3.connect(path, isolation_level=None)
    with contextlib.closing(opened), contextlib.suppress(sqlite3.Error, UnicodeError):
        opened.execute("PRAGMA ignore_check_constraints = ON")
        for _ in range(int(rng.integers(1, 4))):
            _spoil(opened, rng)


def _spoil(opened: sqlite3.Connection, rng: Rng, *, only_text: bool = False) -> None:
    """One value of one row, or a row, or a table."""
    table = TABLES[rng.integers(len(TABLES))]
    columns = [(row[1], row[2]) for row in opened.execute(f"PRAGMA table_info({table})")]
    rows = opened.execute(f"SELECT * FROM {table}").fetchall()
    if not rows:
        return
    if not only_text and rng.random() < 0.15:
        statement = [f"DELETE FROM {table}", f"DROP TABLE {table}"][rng.integers(2)]
        opened.execute(statement)
        return
    at, row = int(rng.integers(len(columns))), rows[rng.integers(len(rows))]
    name, kind = columns[at]
    if only_text and kind != "TEXT":
        return
    where = " AND ".join(f"{other} IS ?" for other, _ in columns)
    value = _other(row[at], rng, only_text=only_text)
    with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeError):
        if value == b"text":
            opened.execute(f"UPDATE {table} SET {name} = CAST(x'ff80' AS TEXT) WHERE {where}", row)
        else:
            opened.execute(f"UPDATE {table} SET {name} = ? WHERE {where}", (value, *row))


def _other(value: Any, rng: Rng, *, only_text: bool) -> Any:
    """Another value in place of one; that of JSON is JSON, mostly."""
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        data = json.loads(value)
        found = mutated(data, rng)
        if only_text:
            found = (
                data | {str(hostile(rng)): TEXTS[rng.integers(len(TEXTS))]}
                if isinstance(data, dict)
                else data
            )
        if rng.random() < 0.9:
            return json.dumps(found)
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
            return edited(value, rng) if isinstance(value, str) else nudged(value, rng)
    found = hostile(rng)
    return json.dumps(found, default=str) if isinstance(found, list | dict) else found


def _front(own: Path) -> None:
    with open_run(own) as run:
        json.dumps(Front(RunView.read(run)).to_dict(), allow_nan=False)


def _list(own: Path) -> None:
    runs_answer(*list_runs(own.parent))


def _lineages(own: Path) -> None:
    with open_run(own) as run:
        for digest in run.digests()[:3]:
            lineage(run, find_proposal(run, digest).digest)
        for name in ("best", "knee", "cheapest"):
            find_proposal(run, name)


def _shown(own: Path) -> None:
    json.dumps(examine(resolve(f"{own}/best")).to_dict(), allow_nan=False)


def _all(own: Path) -> None:
    with open_run(own) as run:
        for read in (run.proposals, run.trainings, run.sessions, run.summary):
            read()


def _folded(own: Path) -> None:
    checkpoint_wal(own)
    with open_run(own) as run:
        run_answer(run)


def _page(own: Path) -> None:
    with open_run(own) as run:
        text = page([RunView.read(run, str(own), run.name)])
    assert f"<{MARK}" not in text, "a text of the record is markup in the page"
    assert f"<script>{MARK}" not in text, "a text of the record is a script in the page"
    assert "<img src=x" not in text, "a text of the record is an element of the page"


_READERS: Final = (_front, _list, _lineages, _shown, _all, _folded, _page, check_run)
