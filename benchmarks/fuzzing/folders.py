"""Fuzzer inputs that are run folders from somebody else, read by commands.

The folder is a copy of a real run. One to three of its parts are replaced: files by pipes, links,
devices or huge files, tables by views, texts by terminal escapes, the owner by another user.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3  # noqa: TID251 - to damage databases
import stat
import struct
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Final

from benchmarks.fuzzing.arguments import run_command
from benchmarks.fuzzing.records import damage
from benchmarks.fuzzing.values import TEXTS, Rng, hostile

EXAMPLE: Final = Path(__file__).parents[2] / "runs" / "example"
FILES: Final = (
    "run.sqlite", "run.sqlite-wal", "run.sqlite-shm", "run.sqlite-journal", "front.json",
    "space.yaml", "policy.yaml", "task.yaml", "lock", "weights",
)  # fmt: skip
# RUN is the run of the input, and "other" an unchanged run.
COMMANDS: Final = (
    "runs", "runs --json", "front RUN", "front RUN --json", "front RUN --csv - --all", "check RUN",
    "front latest", "show RUN/best", "show RUN/knee --json", "report RUN -o out.html",
    "report other RUN -o out.html", "resume RUN", "resume RUN --gens 9", "confirm RUN", "watch RUN",
    "export RUN/best -o out.py", "export RUN/best -o out.py --weights", "cost RUN/best mha",
    "validate RUN/best", "explain RUN/best --task recall", "benchmark RUN/best mha --tasks recall",
    "evaluate RUN/best --task recall", "tensorboard RUN events",
)  # fmt: skip
ENDLESS: Final = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x"
HUGE: Final = "replace(hex(zeroblob(10000000)), '0', 'x')"
DEEP: Final = "replace(hex(zeroblob(50000)), '0', '[')"
STATEMENTS: Final = (
    *(
        f"DROP TABLE {table}; CREATE VIEW {table} AS {ENDLESS} AS id, x AS versions FROM c"
        for table in ("sessions", "run", "trainings")
    ),
    "PRAGMA user_version = 4",
    "PRAGMA application_id = 1",
    f"CREATE VIEW v AS {ENDLESS} FROM c",
    "CREATE VIEW v AS SELECT 1; PRAGMA writable_schema = ON; "
    "UPDATE sqlite_schema SET type = 'table' WHERE name = 'v'",
    "CREATE TRIGGER t AFTER UPDATE ON run BEGIN DELETE FROM trainings; END",
    f"CREATE TRIGGER t AFTER INSERT ON sessions BEGIN INSERT INTO incidents {ENDLESS}, '', '', '', "
    "'', '', '' FROM c; END",
    "CREATE TABLE t (a, b AS (hex(zeroblob(100000000)))); INSERT INTO t VALUES (1)",
    "CREATE TABLE t (a, CHECK (length(hex(zeroblob(100000000))))); INSERT INTO t VALUES (1)",
    "CREATE VIRTUAL TABLE t USING fts5(a)",
    "CREATE INDEX i ON run (hex(note))",
    f"UPDATE run SET note = {HUGE}",
    f"UPDATE trainings SET error = {HUGE} WHERE key = (SELECT min(key) FROM trainings)",
    f"UPDATE answers SET answer = {HUGE}",
    f"UPDATE answers SET answer = {DEEP}",
    f"UPDATE proposals SET genome = {DEEP} WHERE digest = (SELECT min(digest) FROM proposals)",
    f"UPDATE run SET space_text = {DEEP}, task_text = {DEEP}",
    "INSERT INTO incidents WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT "
    "50000) SELECT x, 'error', 'text', '', NULL, NULL, '2026-03-01T12:00:00+00:00' FROM c",
    "UPDATE run SET status = 'running'",
    "PRAGMA journal_mode = WAL",
)  # fmt: skip
TEXT_COLUMNS: Final = (
    ("run", "note"), ("run", "space_name"), ("run", "task_name"), ("run", "algorithm"),
    ("run", "started"), ("run", "status"), ("sessions", "command"), ("sessions", "hardware"),
    ("sessions", "host"), ("proposals", "name"), ("proposals", "formula"), ("proposals", "digest"),
    ("proposals", "operator"), ("trainings", "error"), ("trainings", "worker"),
    ("trainings", "task_name"), ("trainings", "name"), ("trainings", "execution"),
)  # fmt: skip
NOBODY: Final = 65_534


def folder(rng: Rng, place: Path) -> Callable[[], object]:
    """Return a function that runs a reading command on a hostile run folder."""
    runs, outside = place / "runs", place.parent / "outside"
    shutil.rmtree(runs, ignore_errors=True)
    shutil.copytree(EXAMPLE, runs / "other")
    run_folder = Path(shutil.copytree(EXAMPLE, runs / "strange"))
    if not outside.exists():
        shutil.copytree(EXAMPLE, outside)
        _read_once(place)
    mutations = (_replace, _replace, _sql, _sql, _texts, _journal, _leave, _damage)
    for _ in range(int(rng.integers(1, 4))):
        with contextlib.suppress(OSError, sqlite3.Error):
            mutations[rng.integers(len(mutations))](rng, run_folder, outside)
    if is_foreign := bool(rng.random() < 0.1):
        os.chmod(place.parent, 0o755)
        _lock_out(rng, run_folder)
    if rng.random() < 0.2:
        run_folder = _renamed(rng, run_folder)
    words = COMMANDS[rng.integers(len(COMMANDS))].split()
    name = run_folder.name if rng.random() < 0.7 else f"runs/{run_folder.name}"
    words = [word.replace("RUN", name) for word in words]
    return partial(_run, words, place, outside, is_foreign)


def _run(words: list[str], place: Path, outside: Path, is_foreign: bool) -> None:
    before = _state(outside)
    is_open = all(path.stat().st_mode & stat.S_IXOTH for path in (place, *place.parents))
    becomes_nobody = is_foreign and is_open and os.geteuid() == 0  # root may read everything
    if becomes_nobody:
        os.seteuid(NOBODY)
    try:
        run_command(words, place)
    finally:
        if becomes_nobody:
            os.seteuid(0)
        assert _state(outside) == before, "something outside of the run was changed"


def _state(root: Path) -> list[tuple[str, int, int]]:
    infos = [(str(path), path.lstat()) for path in sorted(root.rglob("*"))]
    return [(name, info.st_size, info.st_mtime_ns) for name, info in infos]


@cache
def _read_once(place: Path) -> None:
    """Run all commands on an unchanged run, so that their modules are loaded before a fork."""
    for words in COMMANDS:
        with contextlib.suppress(Exception):
            run_command(words.replace("RUN", "other").split(), place)


def _replace(rng: Rng, run_folder: Path, outside: Path) -> None:
    """Replace a file, or a file of weights, by something else."""
    paths = [run_folder / name for name in FILES] + sorted(run_folder.glob("weights/*"))[:4]
    path = paths[rng.integers(len(paths))]
    same = outside / path.relative_to(run_folder)
    if path.is_file() and rng.random() < 0.2:
        os.truncate(path, int(rng.choice([10, 10**9, 10**11])))
        return
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    targets = (
        "/dev/zero",
        "/etc/passwd",
        "/dev/tty",
        path.name,
        "nowhere",
        str(same),
        str(outside),
    )
    contents = (
        b"", bytes(100_000), rng.bytes(5_000), "name: é\n".encode("utf-16"), "é".encode("latin-1"),
        b"[" * 200_000, b'{"members": ' * 50_000, b"\x1b]0;pwned\x07\x1b[2J",
    )  # fmt: skip
    match rng.integers(7):
        case 0:
            os.mkfifo(path)
        case 1:
            os.mknod(path, stat.S_IFSOCK | 0o600)
        case 2:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # needs root
        case 3:
            path.mkdir()
        case 4 | 5:
            path.symlink_to(targets[rng.integers(len(targets))])
        case 6:
            path.write_bytes(contents[rng.integers(len(contents))])


def _sql(rng: Rng, run_folder: Path, outside: Path) -> None:
    statements = STATEMENTS[rng.integers(len(STATEMENTS))]
    with contextlib.closing(_connected(run_folder)) as connection:
        connection.executescript(statements)


def _connected(run_folder: Path) -> sqlite3.Connection:
    """Return a connection to the run's database; raise OSError if opening it would block."""
    paths = list(run_folder.glob("run.sqlite*"))
    if not all(stat.S_ISREG(path.lstat().st_mode) for path in paths):
        raise OSError("a pipe or a link")
    if sum(path.stat().st_size for path in paths) > 10**8:
        raise OSError("a huge file")
    connection = sqlite3.connect(run_folder / "run.sqlite", isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    views = "SELECT count(*) FROM sqlite_schema WHERE type IN ('view', 'trigger')"
    if connection.execute(views).fetchone()[0]:
        raise OSError("statements without end")
    return connection


def _texts(rng: Rng, run_folder: Path, outside: Path) -> None:
    """Replace texts of the record by hostile ones."""
    with contextlib.closing(_connected(run_folder)) as connection:
        for _ in range(int(rng.integers(1, 5))):
            table, column = TEXT_COLUMNS[rng.integers(len(TEXT_COLUMNS))]
            text = TEXTS[rng.integers(len(TEXTS))].encode(errors="replace").decode()
            with contextlib.suppress(sqlite3.Error):
                connection.execute(f"UPDATE {table} SET {column} = ?", (text,))


def _journal(rng: Rng, run_folder: Path, outside: Path) -> None:
    """Write the journal of an incomplete transaction that names a file to be deleted."""
    database, victim = run_folder / "run.sqlite", os.fsencode(outside / "space.yaml")
    with contextlib.closing(_connected(run_folder)) as connection:
        connection.executescript(
            "PRAGMA cache_size = 1; BEGIN IMMEDIATE; UPDATE proposals SET note = 'x' || note"
        )
        names = database, Path(f"{database}-journal")
        contents = [bytearray(path.read_bytes()) for path in names]
    contents[1][8:12] = b"\xff" * 4  # the number of its pages: up to its end
    if rng.random() < 0.8:
        page = struct.pack(">I", 2**30 // 4096 + 1)
        end = struct.pack(">II", len(victim), sum(victim))
        contents[1] += page + victim + end + bytes.fromhex("d9d505f920a163d7")
    for path, content in zip(names, contents, strict=True):
        path.write_bytes(content)


def _leave(rng: Rng, run_folder: Path, outside: Path) -> None:
    """Leave temporary names of killed processes behind, which lead out of the run."""
    link = run_folder / f".front.json.{'a' * 32}"
    link.symlink_to(outside)
    os.utime(link, (0, 0), follow_symlinks=False)
    left = run_folder / f".best.py.{'b' * 32}"
    left.mkdir()
    (left / "link").symlink_to(outside)
    os.utime(left, (0, 0))


def _damage(rng: Rng, run_folder: Path, outside: Path) -> None:
    _connected(run_folder).close()
    damage(run_folder / "run.sqlite", rng)


def _lock_out(rng: Rng, run_folder: Path) -> None:
    """Take away the permissions of one part or of all parts."""
    paths = [path for path in (run_folder, *sorted(run_folder.rglob("*"))) if not path.is_symlink()]
    for path in paths if rng.random() < 0.3 else [paths[rng.integers(len(paths))]]:
        with contextlib.suppress(OSError):
            os.chmod(path, 0)


def _renamed(rng: Rng, run_folder: Path) -> Path:
    """Give the folder a hostile name."""
    name = os.fsencode("run\x1b]0;pwned\x07\x1b[2J\n\u202e") if rng.random() < 0.5 else b"\xff\xfe"
    if rng.random() < 0.5:
        name = str(hostile(rng)).replace("/", "").replace("\0", "").encode(errors="replace")[:200]
    target = run_folder.parent / (os.fsdecode(name) or "empty")
    with contextlib.suppress(OSError):
        return run_folder.rename(target)
    return run_folder
