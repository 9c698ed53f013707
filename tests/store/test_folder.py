"""Run folders are created completely or not at all, and found by name, path or "latest"."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from nas.common.errors import RunError
from nas.store import Document, create_run, find_run, open_writer
from nas.store.folder import list_runs
from nas.store.run import DATABASE_FILE, Run


def test_create_run_refuses_an_existing_name(new_run, tmp_path):
    new_run("mine")
    with pytest.raises(RunError, match=r"mine: exists already; `nas resume .*/mine`"):
        new_run("mine")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]


def test_create_run_names_by_date_space_and_seed(samples, tmp_path):
    names = []
    for space in ("quickstart", "quickstart", "quickstart", "my space/../ü"):
        setup = samples.setup(space=Document.of(space, ""))
        session = dataclasses.replace(samples.session, started=samples.now)
        with create_run(tmp_path, setup, session) as writer:
            assert writer.run.folder.parent == tmp_path
            names.append(writer.run.name)
    ends = ["quickstart_s3", "quickstart_s3_2", "quickstart_s3_3", "my-space_s3"]
    assert names == [f"2026-03-01_{end}" for end in ends]


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


def test_latest_is_the_run_that_a_process_began_to_write_last(new_run, tmp_path):
    first = new_run("first")
    first.close()
    new_run("second")
    assert find_run("latest", tmp_path / "runs").name == "second"
    open_writer(first.run.folder, None).close()
    assert find_run("latest", tmp_path / "runs").name == "first"
    assert [run.name for run in list_runs(tmp_path / "runs")[0]] == ["second", "first"]
    with pytest.raises(RunError, match="holds no run yet"):
        find_run("latest", tmp_path)


def test_list_of_runs_names_a_file_of_record_in_the_place_of_a_run(tmp_path):
    (tmp_path / "judged").mkdir()
    Run.create(tmp_path / "judged" / DATABASE_FILE).close()
    summaries, (problem,) = list_runs(tmp_path)
    assert not summaries
    assert "holds no run" in str(problem)
