"""A search is begun, interrupted and resumed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.common.errors import NasWarning, RunError
from nas.common.objectives import SearchConfig
from nas.evaluation.execution import Execution, make_evaluator
from nas.evaluation.trial import Incident
from nas.searching import driver
from nas.searching.driver import resume_search, run_search
from nas.searching.listener import GenerationDone, SearchResult
from nas.searching.setup import run_cost_context
from nas.space import SearchSpace, load_space
from nas.store import open_run
from nas.store.frozen import load_frozen_task

from .conftest import TINY, Heard, Table, small_task
from .driving import SPACE

SMALL = SearchConfig("nsga2", population=6, generations=3, seed=4)
ONE = SearchConfig("nsga2", population=8, generations=1, repeats=2, seed=4)


@pytest.fixture
def begin(kit: Any, task: Any) -> Any:
    """A function that runs a search with invented trainings, with Ctrl-C after ``stop_after``."""

    def run(
        settings: SearchConfig = SMALL, stop_after: int | None = None, **options: Any
    ) -> SearchResult:
        words = {"root": kit.root, "name": "run", "make_evaluator": tables(stop_after)}
        return run_search(options.pop("space", SPACE), task, settings, **{**words, **options})

    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search with the settings ``SMALL``; do not write to it."""
    words = {"root": tmp_path_factory.mktemp("runs"), "name": "whole", "make_evaluator": tables()}
    return run_search(SPACE, small_task(), SMALL, **words).folder


@pytest.fixture
def whole(kit: Any, finished: Path) -> Path:
    """A copy of the finished search."""
    return shutil.copytree(finished, kit.root / "whole")


def tables(stop_after: int | None = None) -> Any:
    return lambda task, data: Table(stop_after=stop_after)


def test_search_of_costs_alone_trains_nothing(kit: Any, begin: Any) -> None:
    table = Table()
    space = SearchSpace.model_validate(SPACE.model_dump() | {"objectives": ["macs", "params"]})
    settings = SearchConfig(population=6, generations=3, repeats=4, lag=2)
    ended = begin(settings, space=space, make_evaluator=lambda *_: table)
    assert table.trained == []
    assert (ended.status, ended.counts.evaluated) == ("finished", 18)
    assert not (ended.folder / "weights").exists()
    with open_run(ended.folder) as run:
        assert run.setup.config.repeats == 1
        assert {e.budget.epochs for e in (t.evaluation for t in run.trainings())} == {0}
        assert run.front()


def test_search_counts_decoding_at_the_context_of_its_space(kit: Any, begin: Any) -> None:
    names = ["kv_cache_bytes_per_token", "params"]
    fields = {"objectives": names, "primitives": {**SPACE.primitives, "softmax_free": {}}}
    space = SearchSpace.model_validate({**SPACE.model_dump(), **fields, "context": 10_000})
    ended = begin(SearchConfig(population=12, generations=2), space=space)
    with open_run(ended.folder) as run:
        task = load_frozen_task(run.setup.task)
        assert run_cost_context(run.setup, task).cached_tokens == 10_000
        held = [p.costs[names[0]] for p in run.proposals() if p.is_new]
    assert min(held) < 1, "sums are held once, whatever the context"


def test_interrupted_search_names_the_command_that_resumes_it_from_its_folder_alone(
    kit: Any, begin: Any, whole: Path, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(kit.root.parent)
    heard = Heard()
    ended = begin(stop_after=8, listener=heard, root=Path("runs"))
    assert (ended.status, ended.generations_done, ended.counts.evaluated) == ("interrupted", 1, 8)
    assert "`nas resume run` goes on" in ended.message
    assert heard.events[-1] == ended
    with open_run(ended.folder) as run:
        assert run.status == "stopped"
    moved = tmp_path / "elsewhere" / "run"
    moved.parent.mkdir()
    ended.folder.rename(moved)
    monkeypatch.chdir(moved.parent)
    with pytest.warns(NasWarning, match="found 2 generations; 1 of 3 are done"):
        again = resume_search(Path("run"), make_evaluator=tables(), generations=2)
    assert (again.status, again.generations_done) == ("finished", 3)
    kit.root.joinpath("run").symlink_to(moved)
    assert kit.recorded() == kit.recorded("whole")
    with open_run(moved) as run:
        assert [past.command for past in run.sessions()] == ["nas.search", "nas resume"]


def test_resume_of_a_complete_run_trains_nothing(kit: Any, whole: Path) -> None:
    before = kit.recorded("whole")
    for generations in (None, 2, 3):
        ended = resume_search(whole, make_evaluator=refuse, generations=generations)
        assert (ended.status, ended.counts.evaluated, ended.counts.repeated) == ("finished", 18, 0)
        assert "complete with 3 generations" in ended.message
        assert "--gens" in ended.message
    assert kit.recorded("whole") == before


def test_resume_of_a_complete_run_moves_the_log_of_a_killed_process(
    kit: Any, begin: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    finish = driver.open_writer.__globals__["RunWriter"].finish
    copy = kit.root / "killed"

    def killed(writer: Any, note: str = "") -> None:
        finish(writer, note)
        shutil.copytree(writer.run.folder, copy)

    monkeypatch.setattr("nas.store.writer.RunWriter.finish", killed)
    begin()
    assert (copy / "run.sqlite-wal").exists()
    assert resume_search(copy, make_evaluator=refuse).status == "finished"
    assert not (copy / "run.sqlite-wal").exists()


def refuse(*_: Any) -> Any:
    raise AssertionError("nothing is to be trained")


def test_resume_with_more_generations_equals_a_longer_search(
    kit: Any, begin: Any, whole: Path
) -> None:
    begin(replace(SMALL, generations=5))
    heard = Heard()
    ended = resume_search(whole, make_evaluator=tables(), generations=5, listener=heard)
    assert (ended.status, ended.generations_done) == ("finished", 5)
    assert kit.recorded() == kit.recorded("whole")
    done = heard.of(GenerationDone)
    assert [e.is_replayed for e in done] == [True] * 3 + [False] * 2
    assert heard.events[0].num_recorded == 18
    with open_run(whole) as run:
        assert [e.generation for e in done] == list(run.generations())


@pytest.mark.parametrize("retry_failed", [False, True])
def test_resume_repeats_lost_trainings_and_all_failed_ones_on_request(
    kit: Any, begin: Any, retry_failed: bool
) -> None:
    begin(ONE, name="whole")
    unlucky, again = Table(), Table()
    unlucky.broken = retry_failed
    ok = {k for (_, k, _), e in kit.recorded("whole")["evaluations"].items() if e[0] == "ok"}
    unlucky.lost = set() if retry_failed else ok
    folder = begin(ONE, make_evaluator=lambda *_: unlucky).folder
    if retry_failed:
        assert resume_search(folder, make_evaluator=refuse).counts.failed == 8
    heard = Heard()
    options = {"retry_failed": retry_failed, "listener": heard}
    ended = resume_search(folder, make_evaluator=lambda *_: again, **options)
    assert ended.status == "finished"
    assert retry_failed or {key for key, _ in again.trained} == ok
    assert heard.events[0].num_recorded == 2 * 8 - len(again.trained)
    assert kit.recorded() == kit.recorded("whole")
    assert "complete with 1 generation;" in resume_search(folder, make_evaluator=refuse).message


def test_incidents_are_recorded_and_sent_to_the_listener(begin: Any) -> None:
    table, incident = Table(), Incident("node", "a worker was lost (node): gone.", "host:1")
    heard = Heard()
    own_wait, heard.on_incident = table.wait, heard.events.append

    def wait() -> Any:
        if not table.trained:
            table.on_incident(incident)
        return own_wait()

    table.wait = wait
    folder = begin(make_evaluator=lambda *_: table, listener=heard).folder
    assert heard.of(Incident) == [incident]
    with open_run(folder) as run:
        assert run.incidents() == (incident,)


def test_search_ends_when_the_space_is_exhausted_and_resuming_it_trains_nothing(
    kit: Any, begin: Any
) -> None:
    settings = SearchConfig("random", population=20, generations=9, lag=5)
    ended = begin(settings, space=TINY)
    assert ended.status == "exhausted"
    assert "The space is exhausted: 1000 attempts in a row" in ended.message
    with open_run(ended.folder) as run:
        assert len(run.generations()) == 2
        assert 20 < len(run.trainings()) <= 45
        assert run.counts().replayed >= 1000
    again = resume_search(ended.folder, make_evaluator=refuse, generations=20)
    assert again.status == "exhausted"
    assert "Run run is complete. The space is exhausted" in again.message


def test_resume_accepts_moved_data_and_refuses_changed_data(
    kit: Any, begin: Any, whole: Path, task: Any, monkeypatch: Any
) -> None:
    folder = begin(stop_after=3).folder
    load = type(task).load

    def moved(self: Any) -> Any:
        """As if the digits had been moved, and others lay beside them."""
        here = self.model_copy(update={"data": "digits"})
        data = load(here)
        if self.data == "imagefolder:/other":
            labels = {**data.train, "labels": np.roll(data.train["labels"], 1)}
            return type(data)(data.name, labels, data.validation, "0" * 16, data.facts)
        if self.data != "imagefolder:/moved":
            raise RunError(f"{self.data}: is not there")
        return data

    monkeypatch.setattr(type(task), "load", moved)
    with pytest.raises(RunError, match="digits: is not there"):
        resume_search(folder, make_evaluator=tables())
    with pytest.raises(RunError, match=r"have changed since the run"):
        resume_search(folder, make_evaluator=tables(), data="imagefolder:/other")
    ended = resume_search(folder, make_evaluator=tables(), data="imagefolder:/moved")
    assert ended.status == "finished"
    assert kit.recorded() == kit.recorded("whole")


@pytest.mark.slow
def test_same_seed_gives_the_same_record_on_every_backend(kit: Any, task: Any) -> None:
    settings = SearchConfig(population=8, generations=3, seed=3)
    for name, backend, workers in (("a", "local", 1), ("b", "ray", 1), ("c", "ray", 2)):
        make = partial(make_evaluator, Execution(backend, workers=workers))
        space = load_space("quickstart")
        run_search(space, task, settings, make_evaluator=make, root=kit.root, name=name)
    a, b, c = (kit.recorded(name) for name in "abc")
    assert len(a["proposals"]) >= 24
    assert a == b == c
