"""The loop records everything, trains nothing twice, and its record depends on the seed alone."""

from __future__ import annotations

from typing import Any

import pytest

from nas.common.errors import SpaceExhausted
from nas.evaluation.trial import training_seed
from nas.genome import ModelSizes
from nas.searching.listener import Evaluated, Listener
from nas.searching.loop import LIKELY
from nas.space import SearchSpace
from nas.space.rules import load_policy, validate
from nas.store import RunWriter, open_run

from .conftest import TINY, Table
from .driving import SPACE

surrogate = pytest.param("surrogate", 5, marks=pytest.mark.slow)
by_generation = pytest.param("nsga2", None, marks=pytest.mark.slow)
every_form = pytest.mark.parametrize(("algorithm", "lag"), [("nsga2", 5), by_generation, surrogate])


@every_form
def test_loop_records_every_proposal_and_trains_every_new_one_once(
    kit: Any, algorithm: str, lag: int | None
) -> None:
    table = Table()
    assert kit.search(kit.create(algorithm=algorithm, generations=6, lag=lag), table) is False
    with open_run(kit.root / "run") as run:
        proposals = run.proposals()
        new = [p for p in proposals if p.is_new]
        trained = [p for p in proposals if p.is_trained]
        assert [p.number for p in trained] == list(range(6 * 8))
        assert len({p.key for p in new}) == len(new) == run.counts().evaluated
        # One in ten, and those that the algorithm asks for.
        assert 3 <= len(trained) - len(new) == run.counts().repeated <= 12
        assert {p.key for p in trained} == {p.key for p in new}
        assert sorted(table.trained) == sorted(
            (t.key, training_seed(run.setup.config.seed, t.key, t.repeat)) for t in run.trainings()
        )
        assert len(set(table.trained)) == 6 * 8 == len(run.trainings())
        assert len(run.generations()) == 6
        assert run.counts().rejected == 0
        policy = load_policy(SPACE.policy)
        assert all(validate(p.genome, policy) == () for p in proposals)
        assert all(p.formula and p.costs for p in new)
    for number in range(6 * 8):
        attempts = [p for p in proposals if p.number == number]
        assert [p.attempt for p in attempts] == list(range(len(attempts)))
        assert [p.is_trained for p in attempts] == [False] * (len(attempts) - 1) + [True]


@pytest.mark.parametrize(("algorithm", "lag"), [("surrogate", 5), by_generation])
def test_record_does_not_depend_on_workers_or_order(
    kit: Any, algorithm: str, lag: int | None
) -> None:
    found = []
    for workers, order in ((1, 0), (8, 1)):
        name = f"run_{order}"
        writer = kit.create(name, algorithm=algorithm, lag=lag, generations=3)
        kit.search(writer, Table(workers, order=order))
        found.append(kit.recorded(name))
    assert found[0] == found[1]


@every_form
def test_interrupted_and_resumed_run_equals_an_uninterrupted_run(
    kit: Any, algorithm: str, lag: int | None
) -> None:
    settings = {"algorithm": algorithm, "lag": lag, "repeats": 2}
    kit.search(kit.create("whole", **settings))
    table, stop_after = Table(4, stop_after=29), 29
    with pytest.raises(KeyboardInterrupt):
        kit.search(kit.create(**settings), table)
    with open_run(kit.root / "run") as run:
        assert len(run.trainings()) == len(table.trained) == stop_after
        assert run.status == "stopped"
    rest = Table(2)
    kit.search(kit.open(), rest)
    assert kit.recorded() == kit.recorded("whole")
    assert len(rest.trained) == 2 * 4 * 8 - stop_after
    assert set(rest.trained).isdisjoint(table.trained)


@every_form
def test_resume_after_an_interrupt_while_a_lost_training_is_repeated(
    kit: Any, algorithm: str, lag: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All later generations must be computed again with the new result."""
    settings = {"algorithm": algorithm, "lag": lag}
    kit.search(kit.create("first", **settings))
    with open_run(kit.root / "first") as run:
        key = run.proposals()[1].key
    for name in ("whole", "run"):
        table = Table()
        table.lost = {key}
        kit.search(kit.create(name, **settings), table)
    kit.search(kit.open("whole"))
    own, calls = RunWriter.record_generation, []

    def record(*given: Any, **named: Any) -> None:
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        own(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "record_generation", record)
        with pytest.raises(KeyboardInterrupt):
            kit.search(kit.open())
    kit.search(kit.open())
    assert kit.recorded() == kit.recorded("whole")
    with open_run(kit.root / "run") as run, open_run(kit.root / "whole") as whole:
        assert run.estimates() == whole.estimates()


def test_all_finished_trainings_are_recorded_before_the_first_event(kit: Any) -> None:
    class Several(Table):
        def wait(self) -> Any:
            return [one for _ in range(4) for one in super(Several, self).wait()]

    class Interrupted(Listener):
        def on_evaluation(self, event: Evaluated) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kit.search(kit.create(), Several(), Interrupted())
    with open_run(kit.root / "run") as run:
        assert len(run.trainings()) == 4


def test_resumed_run_keeps_recorded_proposals_that_it_would_now_draw_differently(kit: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        kit.search(kit.create(seed=1), Table(stop_after=20))
    recorded = kit.recorded()["proposals"]
    writer = kit.open()
    # As if another version of the operators, or another processor, drew other genomes.
    writer.run.execute("UPDATE run SET record = json_set(record, '$.config.seed', 2)")
    assert kit.search(writer) is False
    after = kit.recorded()
    assert after["proposals"][: len(recorded)] == recorded
    assert len(after["evaluations"]) == 4 * 8
    kit.search(kit.create("other", seed=2))
    assert kit.recorded("other")["proposals"][:20] != after["proposals"][:20]


@pytest.mark.parametrize(
    ("lag", "repeats"), [pytest.param(None, 1, marks=pytest.mark.slow), (5, 2)]
)
def test_weights_of_likely_members_and_files_of_the_user_are_kept(
    kit: Any, lag: int | None, repeats: int
) -> None:
    seen: list[bool] = []

    class Looking(Table):
        """Looks, whenever it is asked for more, whether all the front has weights."""

        def wait(self) -> Any:
            with open_run(kit.root / "run") as run:
                folder = kit.root / "run" / "weights"
                names = {path.stem for path in folder.glob("*.safetensors")}
                seen.append({m.proposal.key for m in run.front()} <= names)
            return super().wait()

    with pytest.raises(KeyboardInterrupt):
        kit.search(kit.create(lag=lag, repeats=repeats), Looking(4, stop_after=20))
    folder = kit.root / "run" / "weights"
    of_user = f"{'0' * 16}.safetensors"
    (folder / of_user).write_bytes(b"of the user")
    kit.search(kit.open(), Looking(4))
    assert all(seen)
    with open_run(kit.root / "run") as run:
        likely = {e.key for e in run.estimates() if e.is_member or e.p >= LIKELY}
        members = {str(member.proposal.key) for member in run.front()}
    weights = kit.recorded()["weights"]
    assert weights.pop(of_user) == b"of the user"
    assert {f"{key}.safetensors" for key in members} <= weights.keys()
    assert weights == {f"{key}.safetensors": key.encode() for key in likely}


def test_space_without_any_mechanism_at_these_sizes_is_refused(kit: Any) -> None:
    data = TINY.model_dump() | {
        "mechanisms": [],
        "projections": {"kv_heads": ["3/4"], "q_heads": ["3/4"]},
    }
    kit.sizes = ModelSizes(32, 2, 2, 17)
    writer = kit.create(space=SearchSpace.model_validate(data))
    with pytest.raises(SpaceExhausted, match=r"space 'tiny' holds no mechanism.*3/4 of 2"):
        kit.search(writer)
