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
    "overwritten": lambda content: content[:4096] + b"\xff" * 8192 + content[12288:],
    **{
        f"cut at {share}": lambda content, share=share: content[: int(len(content) * share)]
        for share in (0.01, 0.3, 0.99)
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


def read_all(folder):
    with open_run(folder) as run:
        run.sessions()
        for read in (run.summary, run.proposals, run.generations, run.candidates, run.incidents):
            read()


def refusals(folder, samples):
    """The errors of reading and of writing the run."""
    messages = []
    for use in (lambda: read_all(folder), lambda: open_writer(folder, samples.session)):
        with pytest.raises(RunError) as caught:
            use()
        messages.append(str(caught.value))
        assert "\n" not in messages[-1]
    return messages


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_file_is_refused(folder, damage):
    path = folder / "run.sqlite"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RunError, match=r"run\.sqlite: is .*no run database") as caught:
        read_all(folder)
    assert "\n" not in str(caught.value)


def test_database_of_another_program_is_refused_and_unchanged(folder, samples):
    (folder / "run.sqlite").unlink()
    change(folder, "CREATE TABLE bookmarks (url TEXT)")
    before = (folder / "run.sqlite").read_bytes()
    for message in refusals(folder, samples):
        assert "is no run database" in message
    assert (folder / "run.sqlite").read_bytes() == before


@pytest.mark.parametrize(("version", "words"), [(7, "Use the nas that wrote"), (99, "Update nas")])
def test_database_of_another_version_is_refused(folder, samples, version, words):
    change(folder, f"PRAGMA user_version = {version}")
    for message in refusals(folder, samples):
        assert f"has schema {version}; " in message
        assert words in message


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM run", "holds no run"),
        ("UPDATE sessions SET record = json_set(record, '$.started', 'noon')", "valid datetime"),
        ("UPDATE run SET record = json_set(record, '$.config.population', 0)", "population: found"),
        (
            "UPDATE run SET record = replace(record, '0.1', '1e999')",
            "objectives.0.reference: .* finite",
        ),
        (
            "UPDATE sessions SET record = json_remove(record, '$.command')",
            "command: Field required",
        ),
        ("UPDATE trainings SET record = json_remove(record, '$.evaluation.metrics')", "metrics"),
        ("INSERT INTO generations (record) VALUES ('{\"number\": 0}')", "Field required"),
    ],
)
def test_damaged_record_is_refused(folder, statement, words):
    change(folder, statement)
    with pytest.raises(RunError, match=words) as caught:
        read_all(folder)
    assert "\n" not in str(caught.value)


def test_reading_at_any_path_changes_no_file(whole, tmp_path):
    strange = shutil.copytree(whole, tmp_path / "50% a?b#c ü")
    before = {path: path.read_bytes() for path in strange.iterdir()}
    with open_run(strange) as run:
        assert run.counts().proposed == 100
        assert run.front()
    assert {path: path.read_bytes() for path in strange.iterdir()} == before


def test_locked_database_is_waited_for_and_named(writer, samples):
    writer.run.execute("PRAGMA busy_timeout = 10")
    path = writer.run.folder / "run.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RunError, match="another process has locked it; end that process"):
            samples.fill(writer, [(0.5, 10.0)])
    samples.fill(writer, [(0.5, 10.0)])
