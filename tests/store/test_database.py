"""Foreign, damaged, older and newer databases are refused with an error of one sentence."""

from __future__ import annotations

import shutil
import sqlite3  # noqa: TID251 - to damage a file
from contextlib import closing

import pytest

from nas.common.errors import RunError
from nas.store import create_run, open_run, open_writer

DAMAGES = {
    "empty": lambda content: b"",
    "text": lambda content: b"name: quickstart\n" * 500,
    "zeros": lambda content: bytes(8192),
    "overwritten": lambda content: content[:4096] + b"\xff" * 8192 + content[12288:],
    **{
        f"cut at {share}": lambda content, share=share: content[: int(len(content) * share)]
        for share in (0.01, 0.3, 0.9, 0.99)
    },
}


@pytest.fixture(scope="module")
def whole(samples, tmp_path_factory):
    """A closed run whose database has some pages."""
    with create_run(tmp_path_factory.mktemp("runs"), samples.setup(), samples.session) as writer:
        samples.fill(writer, [(i / 100, float(i)) for i in range(100)])
        return writer.run.folder


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of the run to damage."""
    return shutil.copytree(whole, tmp_path / "run")


def change(folder, *statements):
    with closing(sqlite3.connect(folder / "run.sqlite", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def refusals(folder, samples):
    """The errors of reading and of writing the run."""
    messages = []
    for use in (lambda: open_run(folder), lambda: open_writer(folder, samples.session)):
        with pytest.raises(RunError) as caught:
            use()
        messages.append(str(caught.value))
        assert "\n" not in messages[-1]
    return messages


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_file_is_refused(folder, samples, damage):
    path = folder / "run.sqlite"
    path.write_bytes(damage(path.read_bytes()))
    for message in refusals(folder, samples):
        assert "run.sqlite: is " in message
        assert "no run database" in message


def test_database_of_another_program_is_refused_and_unchanged(folder, samples):
    (folder / "run.sqlite").unlink()
    change(folder, "CREATE TABLE bookmarks (url TEXT)")
    before = (folder / "run.sqlite").read_bytes()
    for message in refusals(folder, samples):
        assert "is no run database" in message
    assert (folder / "run.sqlite").read_bytes() == before


@pytest.mark.parametrize("change_to", ["population = 0", "status = 'lost'", "repeats = -1"])
def test_value_that_a_constraint_forbids_is_refused(folder, samples, change_to):
    change(folder, "PRAGMA ignore_check_constraints = ON", f"UPDATE run SET {change_to}")
    with pytest.raises(RunError, match="is damaged"):
        open_writer(folder, samples.session)
    # SQLite does not check constraints for a reader.
    with open_run(folder) as run, pytest.raises(RunError, match="record that cannot be read"):
        run.summary()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE run SET started = CAST(x'ff' AS TEXT)", "is damaged"),
        ("UPDATE run SET started = 'noon'", "cannot be read"),
        ("UPDATE run SET note = hex(zeroblob(10000000))", "string or blob too big"),
        ("UPDATE run SET objectives = '[{}]'", "cannot be read"),
        ("UPDATE run SET objectives = '[]'", "no objectives"),
        (
            "UPDATE run SET objectives = replace(objectives, '0.1', '1e999')",
            "reference\n.* finite",
        ),
        ("UPDATE run SET metrics = '[{}]'", "cannot be read"),
        ("UPDATE run SET calibration = '7'", "cannot be read"),
        ("UPDATE sessions SET started = '0000-99-99'", "cannot be read"),
        ("UPDATE sessions SET versions = '[]'", "cannot be read"),
        ("UPDATE proposals SET genome = '{'", "cannot be read"),
        ("UPDATE proposals SET digest = 'ab'", "two mechanisms with the same digest"),
        ("UPDATE proposals SET genome = '{}'", "cannot be read"),
        ("UPDATE proposals SET parents = 'x'", "cannot be read"),
        ("UPDATE proposals SET costs = '{}'", "cannot be read"),
        ("UPDATE proposals SET costs = '{\"macs\": NaN}'", "a number is nan"),
        ("UPDATE trainings SET metrics = '[1]'", "cannot be read"),
        ("UPDATE trainings SET metrics = '{}'", "cannot be read"),
        ("UPDATE trainings SET wall_seconds = 9e999", "wall_seconds: Input .* finite"),
        ("INSERT INTO generations VALUES (0, 0.5, 0.5, '2026-03-01T12:00')", "lacks its zone"),
        ("INSERT INTO generations VALUES (0, 9e999, 1, '2026-03-01T12:00Z')", "a number is inf"),
        ("INSERT INTO generations VALUES (99, 0.5, 1, '2026-03-01T12:00Z')", "KeyError: 99"),
        ("UPDATE trainings SET purpose = 'confirm', stage = 'sea'", "its stage 'sea'"),
    ],
)
def test_damaged_record_is_refused(folder, statement, words):
    change(folder, "PRAGMA ignore_check_constraints = ON", statement)

    def read_all():
        for read in (run.summary, run.proposals, run.generations, run.trainings):
            read()
        run.trainings("confirm")

    with open_run(folder) as run, pytest.raises(RunError, match=words):
        read_all()


def test_reading_at_any_path_changes_no_file(whole, tmp_path):
    strange = shutil.copytree(whole, tmp_path / "50% a?b#c ü")
    before = {path: path.read_bytes() for path in strange.iterdir()}
    with open_run(strange) as run:
        assert run.counts().proposed == 100
        assert run.front()
    assert {path: path.read_bytes() for path in strange.iterdir()} == before


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
