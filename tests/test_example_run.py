"""The recorded run in runs/example: its counts, its front, and its members."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from nas.space import SearchSpace
from nas.space.rules import Policy, validate
from nas.store import Run, open_run
from nas.store.frozen import from_text, load_frozen_task

FOLDER = Path(__file__).resolve().parent.parent / "runs" / "example"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A copy, since reading a database may leave files beside it."""
    folder = tmp_path_factory.mktemp("runs") / "example"
    shutil.copytree(FOLDER, folder)
    with open_run(folder) as opened:
        yield opened


def test_trainings_are_legal_new_and_successful(run: Run) -> None:
    """Every training was of a legal, new mechanism of the space, and succeeded."""
    setup = run.setup
    task = load_frozen_task(setup.task)
    policy = from_text(setup.policy, Policy)
    space = from_text(setup.space, SearchSpace)
    trained = [p for p in run.proposals() if p.is_new]
    keys = [task.resolve(p.genome).key for p in trained]
    assert len(trained) >= 120
    assert len(set(keys)) == len(keys) == len(run.candidates())
    assert keys == [p.key for p in trained]
    assert not any(validate(p.genome, policy) for p in trained)
    assert not any(space.excludes(p.genome) for p in trained)
    counts = run.counts()
    assert (counts.rejected, counts.failed) == (0, 0)
    assert counts.evaluated + counts.repeated == setup.config.population * setup.config.generations


def test_files_contain_no_path_of_a_machine() -> None:
    for path in (path for path in FOLDER.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for word in (b"/home/", b"/root/", b"/Users/", b"/tmp/"):
            assert word not in content, (path.name, word)
