"""Run folders are created completely or not at all, and found by name, path or "latest"."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nas.common.errors import RunError
from nas.exporting import write_export
from nas.store import Document, create_run, find_run, list_runs, open_writer, split_member
from nas.store.files import STALE_SECONDS


def test_create_run_names_by_date_space_and_seed(samples, tmp_path):
    names = []
    for space in ("quickstart", "quickstart", "quickstart", "my space/../ü"):
        setup = samples.setup(space=Document.of(space, ""))
        with create_run(tmp_path, setup, samples.session, clock=lambda: samples.now) as writer:
            assert writer.run.folder.parent == tmp_path
            names.append(writer.run.name)
    ends = ["quickstart_s3", "quickstart_s3_2", "quickstart_s3_3", "my-space_s3"]
    assert names == [f"2026-03-01_{end}" for end in ends]


@pytest.mark.parametrize("name", ["latest", "", "..", "a/b", ".hidden", "a b", "-x", "x" * 101])
def test_create_run_refuses_an_invalid_name(new_run, name):
    with pytest.raises(RunError, match="cannot name a run; expected letters"):
        new_run(name)


def test_create_run_refuses_an_existing_name(new_run, tmp_path):
    new_run("mine")
    with pytest.raises(RunError, match=r"mine: exists already; `nas resume .*/mine`"):
        new_run("mine")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]


def test_create_run_refuses_a_root_that_is_a_file(samples, tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(RunError, match="runs: no run can be made here"):
        create_run(tmp_path / "runs", samples.setup(), samples.session)


RACE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import Samples
from nas.store import create_run
samples = Samples()
for _ in range(5):
    with create_run(Path(sys.argv[2]), samples.setup(), samples.session) as writer:
        print(writer.run.name)
"""


def test_create_run_by_several_processes_at_once(tmp_path):
    command = [sys.executable, "-c", RACE, str(Path(__file__).parent), str(tmp_path)]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    names = [name for racer in racers for name in racer.communicate()[0].split()]
    assert len(names) == len(set(names)) == 15
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())


def test_list_runs_sorts_by_activity_and_returns_errors(new_run, samples, tmp_path):
    first, second = new_run("first"), new_run("second")
    first.close()
    samples.fill(second, [(0.5, 1.0), (0.4, 2.0)])
    damaged = tmp_path / "runs" / "damaged"
    damaged.mkdir()
    (damaged / "run.sqlite").write_bytes(b"no database" * 100)
    (tmp_path / "runs" / ".new-1").mkdir()
    (tmp_path / "runs" / "README.md").write_text("no run")
    runs, problems = list_runs(tmp_path / "runs")
    assert [(run.name, run.status) for run in runs] == [("first", "stopped"), ("second", "running")]
    assert (runs[1].space, runs[1].task, runs[1].seed) == ("quickstart", "vit-cifar10", 3)
    assert (runs[1].counts.evaluated, runs[1].generations_done) == (2, 0)
    assert len(problems) == 1
    assert "damaged" in str(problems[0])
    later = samples.now.replace(year=2100)
    open_writer(first.run.folder, samples.session, clock=lambda: later).close()
    assert find_run("latest", tmp_path / "runs").name == "first"


def test_find_run_by_name_path_or_file(new_run, tmp_path, monkeypatch):
    folder = new_run("one").run.folder
    assert find_run("one", tmp_path / "runs") == folder
    for source in (folder, f"{folder}/", folder / "run.sqlite"):
        assert find_run(str(source), tmp_path / "elsewhere") == folder
    monkeypatch.chdir(folder)
    assert find_run(".").resolve() == folder.resolve()


@pytest.mark.parametrize("source", ["", "on", "nowhere/at/all", "x" * 5000, "a\0b"])
def test_find_run_refuses_an_unknown_run(new_run, tmp_path, source):
    new_run("one")
    match = r"there is no such run in .*the last ones: one"
    with pytest.raises(RunError, match=match) as caught:
        find_run(source, tmp_path / "runs")
    assert len(str(caught.value)) < 500
    assert ("did you mean 'one'" in str(caught.value)) == (source == "on")


def test_find_run_refuses_latest_without_runs(tmp_path):
    assert list_runs(tmp_path / "nowhere") == ([], [])
    with pytest.raises(RunError, match="holds no run yet; `nas search` makes one"):
        find_run("latest", tmp_path)


def test_split_member():
    assert split_member("latest/best") == ("latest", "best")
    assert split_member("/some/where/run/0a1b") == ("/some/where/run", "0a1b")
    for source in ("latest", "latest/", "/best", ""):
        with pytest.raises(RunError, match="expected RUN/ID, for example latest/best"):
            split_member(source)


def test_temporary_files_of_killed_processes_are_removed_after_an_hour(new_run, samples, tmp_path):
    new_run("one").close()
    root, hexes = tmp_path / "runs", "0" * 32
    left = [root / f".new-{hexes}", root / "one" / f".front.json.{hexes}"]
    fresh, others = root / f".new-{'1' * 32}", [root / ".new-mine", root / "one" / ".front.json"]
    for path in (left[0], fresh):
        path.mkdir()
        (path / "run.sqlite").write_text("")
    others.append(root / f".somebody.{hexes}")  # a person chose this folder
    for path in (left[1], *others):
        path.write_text("")
    (root / f".new-{'2' * 32}").symlink_to(tmp_path)  # is removed, not what it points to
    long_ago = time.time() - STALE_SECONDS - 1
    for path in (*left, *others):
        os.utime(path, (long_ago, long_ago))
    os.utime(root / f".new-{'2' * 32}", (long_ago, long_ago), follow_symlinks=False)
    with create_run(root, samples.setup(), samples.session, name="two"):
        pass
    open_writer(root / "one", samples.session).close()
    assert not any(os.path.lexists(path) for path in (*left, root / f".new-{'2' * 32}"))
    assert all(path.exists() for path in (fresh, *others, root / "one" / "run.sqlite"))


def test_repeated_export_removes_temporary_files_of_a_killed_export(tmp_path):
    hexes, long_ago = "0" * 32, time.time() - STALE_SECONDS - 1
    left = [tmp_path / f".{name}.{hexes}" for name in ("best.py", "folder")]
    # Another process's of just now, another file's, and what only looks alike.
    names = (
        f".best.py.{'1' * 32}",
        f".other.py.{hexes}",
        f".best.py.{'z' * 32}",
        f".best.py.a.{hexes}",
    )
    others = [tmp_path / name for name in names]
    left[1].mkdir()
    for path in (left[0], left[1] / "config.json", *others):
        path.write_text("half")
    for path in (*left, *others[1:]):
        os.utime(path, (long_ago, long_ago))
    write_export("text", tmp_path / "best.py")
    write_export({"config.json": "{}"}, tmp_path / "folder")
    assert sorted(tmp_path.iterdir()) == sorted(
        [*others, tmp_path / "best.py", tmp_path / "folder"]
    )
