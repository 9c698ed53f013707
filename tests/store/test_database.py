"""Foreign, damaged, older and newer databases are told apart, each in one sentence."""

from __future__ import annotations

import shutil
import sqlite3  # noqa: TID251 - to damage a file as no code of ours would
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nas.errors import RunError
from nas.store import RunWriter, front, open_run, open_writer

NewRun = Callable[..., RunWriter]


@pytest.fixture
def folder(new_run: NewRun, samples: Any) -> Path:
    """A closed run of some pages."""
    with new_run() as writer:
        samples.fill(writer, [(i / 100, float(i)) for i in range(100)])
        return writer.run.folder


def change(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "run.sqlite", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def refusals(folder: Path, samples: Any) -> list[str]:
    """What reading and writing say."""
    messages = []
    for use in (lambda: open_run(folder), lambda: open_writer(folder, samples.session)):
        with pytest.raises(RunError) as caught:
            use()
        messages.append(str(caught.value))
        assert "\n" not in messages[-1]
    return messages


@pytest.mark.parametrize("content", [b"", b"name: quickstart\n" * 500, bytes(8192)])
def test_database_that_is_none_is_one_sentence(folder: Path, samples: Any, content: bytes) -> None:
    (folder / "run.sqlite").write_bytes(content)
    for message in refusals(folder, samples):
        assert "run.sqlite: is " in message
        assert "no run database" in message


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.9, 0.99])
def test_database_that_was_cut_off_is_one_sentence(
    folder: Path, samples: Any, share: float
) -> None:
    path = folder / "run.sqlite"
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * share))
    for message in refusals(folder, samples):
        assert "run.sqlite: is damaged or no run database" in message


def test_database_overwritten_in_the_middle_is_one_sentence(folder: Path, samples: Any) -> None:
    path = folder / "run.sqlite"
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    for message in refusals(folder, samples):
        assert "damaged" in message


def test_database_of_another_program_is_left_alone(folder: Path, samples: Any) -> None:
    (folder / "run.sqlite").unlink()
    change(folder, "CREATE TABLE bookmarks (url TEXT)")
    before = (folder / "run.sqlite").read_bytes()
    for message in refusals(folder, samples):
        assert "is no run database; expected one that `nas search` wrote" in message
    assert (folder / "run.sqlite").read_bytes() == before


def test_database_missing_a_table_is_one_sentence(folder: Path) -> None:
    change(folder, "DROP TABLE trials")
    with (
        open_run(folder) as run,
        pytest.raises(RunError, match=r"is damaged or no run database .no such table"),
    ):
        front(run)


@pytest.mark.parametrize("change_to", ["population = 0", "status = 'lost'", "repeats = -1"])
def test_database_with_a_value_that_cannot_be_is_one_sentence(
    folder: Path, samples: Any, change_to: str
) -> None:
    change(folder, "PRAGMA ignore_check_constraints = ON", f"UPDATE run SET {change_to}")
    with pytest.raises(RunError, match="is damaged"):
        open_writer(folder, samples.session)
    # SQLite checks no such rule for those who may only read.
    with open_run(folder) as run, pytest.raises(RunError, match="record that cannot be read"):
        run.summary()


def test_database_text_that_is_no_text_is_one_sentence(folder: Path) -> None:
    change(folder, "UPDATE run SET started = CAST(x'ff' AS TEXT)")
    with open_run(folder) as run, pytest.raises(RunError, match="is damaged"):
        run.summary()


def test_database_without_its_sessions_is_read(folder: Path) -> None:
    change(folder, "DELETE FROM sessions")
    with open_run(folder) as run:
        assert run.summary().active == run.started


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE run SET started = 'noon'",
        "UPDATE sessions SET started = '0000-99-99'",
        "UPDATE sessions SET versions = '[]'",
        "UPDATE proposals SET genome = '{'",
        "UPDATE proposals SET genome = '{}'",
        "UPDATE proposals SET parents = 'x'",
        "UPDATE proposals SET costs = '{}'",
        "UPDATE trials SET metrics = '[1]'",
        "UPDATE trials SET metrics = '{}'",
        "UPDATE trials SET recorded = '2026-03-01T12:00:00'",
        "UPDATE run SET objectives = '[{}]'",
        "UPDATE run SET objectives = '[]'",
        "UPDATE run SET calibration = '7'",
    ],
)
def test_database_with_a_spoilt_record_is_one_sentence(folder: Path, statement: str) -> None:
    change(folder, statement)

    def read_all() -> None:
        for read in (run.summary, run.proposals, run.generations, run.evaluations):
            read()

    with open_run(folder) as run, pytest.raises(RunError, match="record that cannot be read"):
        read_all()


def test_database_with_a_strange_path_opens(folder: Path, tmp_path: Path) -> None:
    strange = tmp_path / "50% a?b#c ü"
    shutil.copytree(folder, strange)
    with open_run(strange) as run:
        assert run.counts().proposed == 100


def test_run_reads_without_leaving_a_trace(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with open_run(folder) as run:
        front(run)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_open_run_of_no_run_is_one_sentence(tmp_path: Path, samples: Any) -> None:
    for message in refusals(tmp_path, samples):
        assert "is no run folder; expected one that holds run.sqlite" in message


@pytest.mark.parametrize(
    ("version", "whose", "what"),
    [(99, "a later nas", "Update nas"), (2, "an older nas", "Use the nas that wrote it")],
)
def test_database_of_another_schema_is_refused(
    folder: Path, samples: Any, version: int, whose: str, what: str
) -> None:
    change(folder, f"PRAGMA user_version = {version}")
    for message in refusals(folder, samples):
        assert f"schema {version} of {whose}; this one reads schema 3 alone. {what}" in message
