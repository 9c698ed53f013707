"""Front, hypervolume and counts in memory equal what the store says of the same record."""

from __future__ import annotations

from typing import Any

import pytest

from nas.evaluation.record import OBJECTIVES
from nas.search.listener import GenerationDone
from nas.search.setup import ends
from nas.store import front, front_hypervolume, open_run


@pytest.mark.parametrize("repeats", [1, 3])
def test_standing_equals_the_store(kit: Any, heard: Any, repeats: int) -> None:
    kit.search(kit.create(repeats=repeats), listener=heard)
    last = heard.of(GenerationDone)[-1]
    with open_run(kit.root / "run") as run:
        members = front(run)
        assert last.generation.front == tuple(member.digest for member in members)
        assert last.generation.hypervolume == front_hypervolume(run, members)
        assert last.generation.best_accuracy == members[0].objectives["accuracy"]
        assert last.counts == run.counts()
        assert run.generations()[-1] == last.generation


def test_standing_hypervolume_never_shrinks(kit: Any, heard: Any) -> None:
    kit.search(kit.create(generations=8), listener=heard)
    volumes = [event.generation.hypervolume for event in heard.of(GenerationDone)]
    assert len(volumes) == 8
    assert volumes == sorted(volumes)
    assert 0.0 < volumes[0] < volumes[-1] < 1.0


def test_standing_a_candidate_with_one_failed_repeat_is_in_no_front(kit: Any, heard: Any) -> None:
    kit.search(kit.create(repeats=2, generations=2), listener=heard)
    with open_run(kit.root / "run") as run:
        failed = {key for key, is_ok, _ in run.outcomes() if not is_ok}
        names = {p.digest for p in run.proposals() if p.key in failed}
        assert names
        assert names.isdisjoint(run.generations()[-1].front)


def test_ends_are_perfect_and_free_against_chance_and_twice_mha() -> None:
    objectives = (OBJECTIVES["accuracy"], OBJECTIVES["macs"], OBJECTIVES["params"])
    ideal, reference = ends(objectives, num_classes=10, mha={"macs": 500.0, "params": 64.0})
    assert ideal == (1.0, 0.0, 0.0)
    assert reference == (0.1, 1000.0, 128.0)
