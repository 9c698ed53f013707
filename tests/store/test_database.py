"""Foreign, damaged, older and newer databases are told apart, each in one sentence."""

from __future__ import annotations

import shutil
import sqlite3  # noqa: TID251 - to damage a file as no code of ours would
from contextlib import closing

import pytest

from nas.common.errors import RunError
from nas.store import create_run, open_run, open_writer


@pytest.fixture(scope="module")
def whole(samples, tmp_path_factory):
    """A closed run of some pages."""
    with create_run(tmp_path_factory.mktemp("runs"), samples.setup(), samples.session) as writer:
        samples.fill(writer, [(i / 100, float(i)) for i in range(100)])
        return writer.run.folder


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of it to damage."""
    return shutil.copytree(whole, tmp_path / "run")


def change(folder, *statements):
    with closing(sqlite3.connect(folder / "run.sqlite", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def refusals(folder, samples):
    """What reading and writing say."""
    messages = []
    for use in (lambda: open_run(folder), lambda: open_writer(folder, samples.session)):
        with pytest.raises(RunError) as caught:
            use()
        messages.append(str(caught.value))
        assert "\n" not in messages[-1]
    return messages


@pytest.mark.parametrize("content", [b"", b"name: quickstart\n" * 500, bytes(8192)])
def test_database_that_is_none_is_one_sentence(folder, samples, content):
    (folder / "run.sqlite").write_bytes(content)
    for message in refusals(folder, samples):
        assert "run.sqlite: is " in message
        assert "no run database" in message


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.9, 0.99])
def test_database_that_was_cut_off_is_one_sentence(folder, samples, share):
    path = folder / "run.sqlite"
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * share))
    for message in refusals(folder, samples):
        assert "run.sqlite: is damaged or no run database" in message


def test_database_overwritten_in_the_middle_is_one_sentence(folder, samples):
    with (folder / "run.sqlite").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    for message in refusals(folder, samples):
        assert "damaged" in message


def test_database_of_another_program_is_left_alone(folder, samples):
    (folder / "run.sqlite").unlink()
    change(folder, "CREATE TABLE bookmarks (url TEXT)")
    before = (folder / "run.sqlite").read_bytes()
    for message in refusals(folder, samples):
        assert "is no run database; expected one that `nas search` wrote" in message
    assert (folder / "run.sqlite").read_bytes() == before


@pytest.mark.parametrize("change_to", ["population = 0", "status = 'lost'", "repeats = -1"])
def test_database_with_a_value_that_cannot_be_is_one_sentence(folder, samples, change_to):
    change(folder, "PRAGMA ignore_check_constraints = ON", f"UPDATE run SET {change_to}")
    with pytest.raises(RunError, match="is damaged"):
        open_writer(folder, samples.session)
    # SQLite checks no such rule for those who may only read.
    with open_run(folder) as run, pytest.raises(RunError, match="record that cannot be read"):
        run.summary()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE run SET started = CAST(x'ff' AS TEXT)", "is damaged"),
        ("UPDATE run SET started = 'noon'", "record that cannot be read"),
        ("UPDATE sessions SET started = '0000-99-99'", "record that cannot be read"),
        ("UPDATE sessions SET versions = '[]'", "record that cannot be read"),
        ("UPDATE proposals SET genome = '{'", "record that cannot be read"),
        ("UPDATE proposals SET genome = '{}'", "record that cannot be read"),
        ("UPDATE proposals SET parents = 'x'", "record that cannot be read"),
        ("UPDATE proposals SET costs = '{}'", "record that cannot be read"),
        ("UPDATE trainings SET metrics = '[1]'", "record that cannot be read"),
        ("UPDATE trainings SET metrics = '{}'", "record that cannot be read"),
        ("INSERT INTO generations VALUES (0, 0.5, 0.5, '2026-03-01T12:00')", "cannot be read"),
        ("UPDATE run SET objectives = '[{}]'", "record that cannot be read"),
        (
            "INSERT INTO generations VALUES (0, 9e999, 0.5, '2026-03-01T12:00:00+00:00')",
            "a number is inf",
        ),
        (
            "UPDATE trainings SET wall_seconds = 9e999",
            "wall_seconds: Input .* finite",
        ),
        ("UPDATE proposals SET costs = '{\"macs\": NaN}'", "a number is nan"),
        ("UPDATE run SET objectives = '[]'", "record that cannot be read"),
        ("UPDATE run SET calibration = '7'", "record that cannot be read"),
        (
            "INSERT INTO generations VALUES (99, 0.5, 0.5, '2026-03-01T12:00:00+00:00')",
            "record that cannot be read .KeyError: 99",
        ),
    ],
)
def test_database_with_a_spoilt_record_is_one_sentence(folder, statement, words):
    change(folder, statement)

    def read_all():
        for read in (run.summary, run.proposals, run.generations, run.trainings):
            read()

    with open_run(folder) as run, pytest.raises(RunError, match=words):
        read_all()


def test_database_with_a_confirmation_of_no_part_is_one_sentence(folder):
    """It was read, and whoever then sorted by parts ended in a ValueError."""
    change(
        folder,
        "PRAGMA ignore_check_constraints = ON",
        "UPDATE trainings SET purpose = 'confirm', stage = 'sea'",
    )
    with open_run(folder) as run, pytest.raises(RunError, match="record that cannot be read"):
        run.trainings("confirm")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sqlite_schema SET sql = replace(sql, ' STRICT', '')",
        "UPDATE sqlite_schema SET sql = replace(sql, 'wall_seconds REAL', 'wall_seconds TEXT')",
        "UPDATE sqlite_schema SET sql = CAST(x'ff' AS TEXT) WHERE name = 'trainings'",
        "DROP TABLE trainings",
    ],
)
def test_database_whose_tables_would_hold_anything_is_refused(folder, samples, statement):
    change(folder, "PRAGMA writable_schema = ON", statement)
    for message in refusals(folder, samples):
        assert "is damaged or no run database" in message


def test_database_without_its_sessions_is_read(folder):
    change(folder, "DELETE FROM sessions")
    with open_run(folder) as run:
        assert run.summary().active == run.started


def test_database_is_read_at_a_strange_path_without_a_trace(whole, tmp_path):
    strange = shutil.copytree(whole, tmp_path / "50% a?b#c ü")
    before = {path: path.read_bytes() for path in strange.iterdir()}
    with open_run(strange) as run:
        assert run.counts().proposed == 100
        run.front()
    assert {path: path.read_bytes() for path in strange.iterdir()} == before


def test_open_run_of_no_run_is_one_sentence(tmp_path, samples):
    for message in refusals(tmp_path, samples):
        assert "is no run folder; expected one that holds run.sqlite" in message


@pytest.mark.parametrize(
    ("version", "whose", "what"),
    [(99, "nas 0.1", "Update nas."), (4, "nas 0.1", "Use nas 0.1, or start a new run.")],
)
def test_database_of_another_schema_is_refused(folder, samples, version, whose, what):
    change(folder, f"PRAGMA user_version = {version}")
    for message in refusals(folder, samples):
        assert f"has schema {version}, written by {whose}; this nas reads schema 5" in message
        assert what in message


def test_intact_run_of_another_schema_and_other_tables_is_not_called_damaged(folder, samples):
    change(folder, "DROP TABLE trainings", "DROP TABLE answers", "PRAGMA user_version = 4")
    for message in refusals(folder, samples):
        assert "damaged" not in message
        assert "has schema 4, written by nas 0.1" in message


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW more AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) "
        "SELECT * FROM n",
        "CREATE TRIGGER slow AFTER UPDATE ON run BEGIN DELETE FROM trainings; END",
    ],
)
def test_database_with_a_view_or_trigger_is_refused(folder, samples, statement):
    change(folder, statement)
    for message in refusals(folder, samples):
        assert "which nas never makes" in message


def test_locked_database_is_waited_for_and_named(writer, samples, monkeypatch, caplog):
    monkeypatch.setattr("nas.store.database.WAITS", 2)
    writer._database.execute("PRAGMA busy_timeout = 10")
    path = writer.run.folder / "run.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RunError, match="another process has locked it; end that process"):
            samples.fill(writer, [(0.5, 10.0)])
    assert "another process has locked it; waiting" in caplog.text
    samples.fill(writer, [(0.5, 10.0)])
