"""The loop: everything recorded, nothing trained twice, the same front on every way to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from nas.errors import RunError, SpaceExhausted
from nas.evaluation.record import training_seed
from nas.search.front_file import FRONT_FILE
from nas.search.listener import Evaluated, GenerationDone, GenerationStarted
from nas.space import SearchSpace
from nas.store import open_run
from nas.validation import validate


def test_loop_records_every_proposal_and_trains_every_new_one_once(
    kit: Any, make_table: Callable[..., Any]
) -> None:
    table = make_table()
    assert kit.search(kit.create(generations=6), table) is False
    with open_run(kit.root / "run") as run:
        proposals = run.proposals()
        new = [p for p in proposals if p.outcome == "new"]
        assert len(new) == 6 * 8
        assert len({p.key for p in new}) == len(new)
        assert sorted(table.trained) == sorted(
            (p.key, training_seed(run.setup.seed, p.key, 0)) for p in new
        )
        assert {(p.key, 0) for p in new} == set(run.evaluations())
        assert len(run.generations()) == 6
    for generation in range(6):
        positions = [p.position for p in proposals if p.generation == generation]
        assert positions == list(range(len(positions)))


def test_loop_trains_nothing_that_the_policy_forbids(kit: Any) -> None:
    kit.search(kit.create(generations=6))
    with open_run(kit.root / "run") as run:
        proposals = run.proposals()
        assert run.counts().rejected == 0
        assert all(validate(p.genome, kit.policy) == () for p in proposals)
        assert all(p.formula for p in proposals)


def test_loop_repeats_have_seeds_of_their_own(kit: Any, make_table: Callable[..., Any]) -> None:
    table = make_table()
    kit.search(kit.create(generations=2, repeats=3), table)
    counts = Counter(key for key, _ in table.trained)
    assert set(counts.values()) == {3}
    assert len(set(table.trained)) == 2 * 8 * 3


@pytest.mark.parametrize("algorithm", ["nsga2", "regularized-evolution"])
def test_loop_the_front_does_not_depend_on_the_number_of_workers(
    kit: Any, make_table: Callable[..., Any], algorithm: str
) -> None:
    found = []
    for workers in (1, 2, 7):
        name = f"with_{workers}"
        kit.search(kit.create(name, algorithm=algorithm), make_table(workers))
        found.append(kit.recorded(name))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("stop_after", [0, 1, 8, 13, 31])
def test_loop_interrupted_and_resumed_is_as_if_it_never_was(
    kit: Any, make_table: Callable[..., Any], stop_after: int
) -> None:
    kit.search(kit.create("whole"))
    table = make_table(stop_after=stop_after)
    with pytest.raises(KeyboardInterrupt):
        kit.search(kit.create(), table)
    with open_run(kit.root / "run") as run:
        assert len(run.evaluations()) == len(table.trained) == stop_after
        assert run.status == "stopped"
    rest = make_table()
    kit.search(kit.open(), rest)
    assert kit.recorded() == kit.recorded("whole")
    assert len(rest.trained) == 4 * 8 - stop_after
    assert set(rest.trained).isdisjoint(table.trained)


def test_loop_resumed_with_more_generations_goes_on(
    kit: Any, make_table: Callable[..., Any], heard: Any
) -> None:
    kit.search(kit.create("whole", generations=6))
    kit.search(kit.create(generations=4))
    writer = kit.open()
    writer.raise_generations(6)
    table = make_table()
    kit.search(writer, table, heard)
    assert kit.recorded() == kit.recorded("whole")
    assert len(table.trained) == 2 * 8
    replayed = [event.is_replayed for event in heard.of(GenerationDone)]
    assert replayed == [True] * 4 + [False] * 2


def test_loop_a_proposal_that_differs_from_the_record_is_an_error(
    kit: Any, make_table: Callable[..., Any]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        kit.search(kit.create(seed=1), make_table(stop_after=20))
    writer = kit.open()
    table = make_table()
    # As if another version of the operators drew other samples.
    writer.run._database.execute("UPDATE run SET seed = 2")
    with pytest.raises(RunError, match=r"generation 0, proposal 2: the search now proposes"):
        kit.search(writer, table)
    assert table.trained == []


def test_loop_listener_hears_what_is_recorded_already(kit: Any, heard: Any) -> None:
    writer = kit.create(generations=2)
    seen: list[bool] = []
    append = heard.events.append

    def on_evaluation(event: Evaluated) -> None:
        append(event)
        with open_run(kit.root / "run") as run:
            seen.append(run.evaluation(event.proposal.key, event.repeat) == event.evaluation)

    heard.on_evaluation = on_evaluation
    kit.search(writer, listener=heard)
    assert seen == [True] * 16
    starts = [(e.number, e.to_train, e.recorded) for e in heard.of(GenerationStarted)]
    assert starts == [(0, 8, 0), (1, 8, 0)]
    assert [e.done for e in heard.of(Evaluated)] == [*range(1, 9)] * 2
    assert all(e.to_train == 8 for e in heard.of(Evaluated))


def test_loop_writes_front_json_after_each_generation(kit: Any, heard: Any) -> None:
    writer = kit.create()
    found: list[float] = []

    def on_generation(event: GenerationDone) -> None:
        answer = json.loads((kit.root / "run" / FRONT_FILE).read_text())
        found.append(answer["hypervolume"])
        assert [member["id"] for member in answer["members"]] == list(event.generation.front)
        assert answer["hypervolume"] == event.generation.hypervolume

    heard.on_generation = on_generation
    kit.search(writer, listener=heard)
    assert len(found) == 4


def test_loop_ends_when_the_space_is_exhausted(kit: Any, make_table: Callable[..., Any]) -> None:
    table = make_table()
    writer = kit.create(space=kit.tiny, population=30, generations=9, algorithm="random")
    assert kit.search(writer, table) is True
    with open_run(kit.root / "run") as run:
        assert run.generations()[0].counts.evaluated == 30
        assert len(run.generations()) == 2
        assert 45 <= len(table.trained) == len(run.evaluations()) <= 50
        assert run.counts().replayed >= 1000


def test_loop_a_space_smaller_than_the_population_works(kit: Any) -> None:
    writer = kit.create(space=kit.tiny, population=100, generations=9)
    assert kit.search(writer) is True
    with open_run(kit.root / "run") as run:
        assert len(run.generations()) == 1
        assert 40 <= run.counts().evaluated <= 50


def test_loop_a_space_without_any_mechanism_at_these_sizes_is_an_error(kit: Any) -> None:
    data = kit.tiny.model_dump() | {
        "mechanisms": [],
        "projections": {"kv_heads": ["3/4"], "q_heads": ["3/4"]},
    }
    space = SearchSpace.model_validate(data)
    kit.sizes["heads"] = 2
    try:
        with pytest.raises(SpaceExhausted, match=r"space 'tiny' holds no mechanism.*3/4 of 2"):
            kit.search(kit.create(space=space))
    finally:
        kit.sizes["heads"] = 4
