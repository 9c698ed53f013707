"""Begin, resume, interrupt: what the command line calls."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nas.errors import ConfigError, RunError, SpaceError
from nas.evaluation.backends import make_evaluator
from nas.evaluation.choices import Choices
from nas.evaluation.local import LocalEvaluator
from nas.search import driver
from nas.search.driver import reference_costs, resume_search, run_search
from nas.search.listener import Ended, Evaluated, GenerationDone, Started
from nas.search.setup import Settings, make_setup
from nas.space import SearchSpace, load_space
from nas.store import find_run, open_run, open_writer
from nas.tasks import load_images

SMALL = Settings(population=6, generations=3, seed=4)


@pytest.fixture
def table(kit: Any) -> Any:
    """Makes evaluators that look results up, in this process."""
    return partial(LocalEvaluator, train=kit.look_up)


def stopping(make_table: Any, stop_after: int) -> Any:
    """Makes an evaluator to which Ctrl-C comes after so many trainings."""
    return lambda task, data: make_table(stop_after=stop_after)


def test_search_on_digits_trains_and_finds_a_front(kit: Any, task: Any, heard: Any) -> None:
    ended = run_search(
        load_space("quickstart"),
        task,
        Settings(population=5, generations=2),
        make_evaluator=LocalEvaluator,
        root=kit.root,
        command="nas search --space quickstart",
        listener=heard,
    )
    assert (ended.status, ended.generations_done) == ("finished", 2)
    assert ended.counts.evaluated == 10
    assert ended.counts.rejected == ended.counts.failed == 0
    assert 0.0 < ended.hypervolume < 1.0
    assert [type(heard.events[0]), type(heard.events[-1])] == [Started, Ended]
    assert len(heard.of(Evaluated)) == 10
    with open_run(ended.folder) as run:
        assert (run.status, run.sessions()[0].session.command) == (
            "finished",
            "nas search --space quickstart",
        )
        mha = run.proposals()[0]
        evaluation = run.evaluation(mha.key or "")
        assert evaluation is not None
        # Twice what standard attention costs, and one of ten classes by chance.
        assert run.setup.reference_point == (0.1, 2 * evaluation.objectives["macs"])


def test_search_closes_its_evaluator_whatever_happens(kit: Any, task: Any, make_table: Any) -> None:
    made = [make_table(), make_table(stop_after=3)]
    waiting = list(made)
    search = partial(
        run_search, kit.space, task, SMALL, make_evaluator=lambda *_: waiting.pop(0), root=kit.root
    )
    search(name="one")
    assert search(name="two").status == "interrupted"
    with pytest.raises(RunError, match="exists already"):
        search(name="one")
    assert [table.closed for table in made] == [True] * 2


def test_search_writes_copies_that_explain_the_run(kit: Any, task: Any, table: Any) -> None:
    ended = run_search(kit.space, task, SMALL, make_evaluator=table, root=kit.root, name="run")
    names = {path.name for path in ended.folder.iterdir()}
    copies = {"space.yaml", "policy.yaml", "task.yaml", "choices.yaml"}
    assert copies | {"run.sqlite", "front.json"} <= names


def test_resume_needs_the_run_folder_alone(
    kit: Any, task: Any, table: Any, make_table: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    begin = partial(run_search, kit.space, task, SMALL, root=kit.root)
    begin(make_evaluator=table, name="whole")
    ended = begin(make_evaluator=stopping(make_table, 10), name="run")
    assert ended.status == "interrupted"
    moved = tmp_path / "elsewhere" / "run"
    moved.parent.mkdir()
    ended.folder.rename(moved)
    monkeypatch.chdir(moved.parent)
    again = resume_search(Path("run"), make_evaluator=table)
    assert (again.status, again.generations_done) == ("finished", 3)
    kit.root.joinpath("run").symlink_to(moved)
    assert kit.recorded() == kit.recorded("whole")


def test_choices_are_frozen_into_the_run_and_used_again(
    kit: Any, task: Any, make_table: Any
) -> None:
    first, second = make_table(stop_after=8), make_table()
    begin = partial(run_search, kit.space, task, SMALL, root=kit.root)
    folder = begin(make_evaluator=lambda *_: first, name="run").folder
    second.choose = lambda: pytest.fail("a resumed run measures nothing")
    resume_search(folder, make_evaluator=lambda *_: second)
    assert first.choices == second.choices == make_table().choose()
    with open_run(folder) as run:
        assert Choices.from_dict(run.setup.choices) == first.choices


def test_a_run_that_was_begun_without_choices_goes_on_without(
    kit: Any, task: Any, make_table: Any, monkeypatch: Any
) -> None:
    def older(*arguments: Any, choices: Any, **options: Any) -> Any:
        return make_setup(*arguments, **options)

    monkeypatch.setattr(driver, "make_setup", older)
    stopped, table = make_table(stop_after=8), make_table()
    begin = partial(run_search, kit.space, task, SMALL, root=kit.root)
    folder = begin(make_evaluator=lambda *_: stopped).folder
    assert resume_search(folder, make_evaluator=lambda *_: table).status == "finished"
    assert table.choices is None


def test_search_interrupted_says_how_to_go_on(
    kit: Any, task: Any, make_table: Any, heard: Any, monkeypatch: Any
) -> None:
    begin = partial(run_search, kit.space, task, SMALL, make_evaluator=stopping(make_table, 8))
    ended = begin(root=kit.root, name="run", listener=heard)
    assert ended.status == "interrupted"
    assert ended.generations_done == 1
    assert ended.counts.evaluated == 8
    assert f"`nas resume {ended.folder}` goes on" in ended.message
    assert heard.events[-1] == ended
    with open_run(ended.folder) as run:
        assert run.status == "stopped"
    monkeypatch.chdir(kit.root.parent)
    assert "`nas resume two` goes on" in begin(root=Path("runs"), name="two").message
    assert find_run("two", Path("runs"))


def test_resume_of_a_complete_run_says_so_and_starts_nothing(
    kit: Any, task: Any, table: Any
) -> None:
    folder = run_search(
        kit.space, task, SMALL, make_evaluator=table, root=kit.root, name="run"
    ).folder
    before = kit.recorded()

    def refuse(*_: Any) -> Any:
        raise AssertionError("nothing is to be trained")

    for generations in (None, 2, 3):
        ended = resume_search(folder, make_evaluator=refuse, generations=generations)
        assert (ended.status, ended.counts.evaluated) == ("finished", 18)
        assert "complete with 3 generations" in ended.message
        assert "--gens" in ended.message
    assert kit.recorded() == before


def test_resume_of_a_complete_run_with_more_generations_goes_on(
    kit: Any, task: Any, table: Any, heard: Any
) -> None:
    begin = partial(run_search, kit.space, task, make_evaluator=table, root=kit.root)
    begin(Settings(population=6, generations=5, seed=4), name="whole")
    folder = begin(SMALL, name="run").folder
    ended = resume_search(folder, make_evaluator=table, generations=5, listener=heard)
    assert (ended.status, ended.generations_done) == ("finished", 5)
    assert kit.recorded() == kit.recorded("whole")
    assert [e.is_replayed for e in heard.of(GenerationDone)] == [True] * 3 + [False] * 2
    assert heard.events[0].num_recorded == 18


def test_resume_of_an_exhausted_run_says_so(kit: Any, task: Any, table: Any) -> None:
    ended = run_search(
        kit.tiny,
        task,
        Settings(algorithm="random", population=30, generations=9),
        make_evaluator=table,
        root=kit.root,
        name="run",
    )
    assert ended.status == "exhausted"
    assert "The space is exhausted: 1000 attempts in a row" in ended.message
    again = resume_search(ended.folder, make_evaluator=table, generations=20)
    assert again.status == "exhausted"
    assert "Run run is complete. The space is exhausted" in again.message


def test_resume_while_another_process_writes_is_refused(kit: Any, task: Any, table: Any) -> None:
    folder = run_search(
        kit.space, task, SMALL, make_evaluator=table, root=kit.root, name="run"
    ).folder
    with (
        open_writer(folder, kit.session),
        pytest.raises(RunError, match=f"is being written by process {os.getpid()}"),
    ):
        resume_search(folder, make_evaluator=table, generations=9)


def test_resume_with_other_data_is_refused(
    kit: Any, task: Any, table: Any, make_table: Any, monkeypatch: Any
) -> None:
    folder = run_search(
        kit.space, task, SMALL, make_evaluator=stopping(make_table, 3), root=kit.root
    ).folder
    # As if a later scikit-learn carried other digits.
    monkeypatch.setattr("nas.search.driver.fingerprint", lambda task, data: "0" * 16)
    with pytest.raises(RunError, match=r"images or recipe have changed"):
        resume_search(folder, make_evaluator=table)


def test_resume_of_no_run_is_an_error(kit: Any, table: Any) -> None:
    with pytest.raises(RunError, match="is no run folder"):
        resume_search(kit.root / "nothing", make_evaluator=table)


def test_resume_with_a_negative_count_is_an_error(kit: Any, table: Any) -> None:
    with pytest.raises(ConfigError, match="generations: found -1; expected a number from 1 to"):
        resume_search(kit.root, make_evaluator=table, generations=-1)


def test_search_a_space_with_a_fault_makes_no_folder(kit: Any, task: Any, table: Any) -> None:
    space = SearchSpace.model_validate(kit.space.model_dump() | {"mechanisms": ["qana"]})
    with pytest.raises(SpaceError, match="mechanisms: qana"):
        run_search(space, task, SMALL, make_evaluator=table, root=kit.root)
    assert not kit.root.exists()


def test_reference_costs_measure_latency_only_where_it_is_an_objective(kit: Any, task: Any) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is to be trained")

    evaluator = LocalEvaluator(task, load_images(task.data, task), train=refuse)
    counted = reference_costs(task, ("accuracy", "macs"), evaluator, 0)
    assert set(counted) >= {"macs", "params", "kv_cache_bytes_per_token"}
    with pytest.raises(RunError, match=r"standard attention.*cannot be trained \(error: Assert"):
        reference_costs(task, ("latency_ms",), evaluator, 0)


def test_search_with_latency_as_an_objective(kit: Any, task: Any) -> None:
    space = SearchSpace.model_validate(
        kit.space.model_dump() | {"objectives": ["accuracy", "latency_ms"]}
    )
    settings = Settings(population=2, generations=1)
    ended = run_search(space, task, settings, make_evaluator=LocalEvaluator, root=kit.root)
    with open_run(ended.folder) as run:
        assert 0.001 < run.setup.reference_point[1] < 1000.0


@pytest.mark.slow
def test_search_same_seed_same_front_on_every_backend(kit: Any, task: Any) -> None:
    begin = partial(
        run_search, load_space("quickstart"), task, Settings(population=8, generations=3, seed=3)
    )
    for name, backend, workers in (("a", "local", 1), ("b", "ray", 1), ("c", "ray", 2)):
        make = partial(make_evaluator, backend, workers=workers)
        begin(make_evaluator=make, root=kit.root, name=name)
    found = [kit.recorded(name) for name in "abc"]
    for run in found:
        assert len(run["proposals"]) >= 24
    assert [run["generations"] for run in found] == [found[0]["generations"]] * 3
    assert [run["proposals"] for run in found] == [found[0]["proposals"]] * 3
    assert [run["evaluations"] for run in found] == [found[0]["evaluations"]] * 3
