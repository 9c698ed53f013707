"""The contract that every algorithm keeps, run over all of them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from nas.errors import ConfigError
from nas.search.algorithm import ALGORITHMS, Algorithm, Result, check_algorithm, make_algorithm
from nas.search.novelty import Proposed, new_ones

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def result_of(proposed: Proposed, width: int = 2) -> Result:
    """Something that follows from the key; one in eight fails."""
    assert proposed.key is not None
    number = int(proposed.key, 16)
    if number % 8 == 0:
        return None
    return tuple(float(number >> 8 * i & 255) for i in range(1, width + 1))


def drive(algorithm: Algorithm, generations: int, width: int = 2) -> list[list[Proposed]]:
    """Ask and tell; give what was proposed."""
    asked = []
    for _ in range(generations):
        asked.append(algorithm.ask())
        algorithm.tell([result_of(p, width) for p in new_ones(asked[-1])])
    return asked


def keys(asked: Sequence[Sequence[Proposed]]) -> list[str | None]:
    return [p.key for proposals in asked for p in new_ones(proposals)]


@every_algorithm
def test_algorithm_every_generation_is_full_of_new_ones(kit: Any, name: str) -> None:
    asked = drive(make_algorithm(name, kit.materials()), 8)
    assert [len(new_ones(proposals)) for proposals in asked] == [10] * 8
    assert len(set(keys(asked))) == 80


@every_algorithm
def test_algorithm_first_come_the_named_mechanisms(kit: Any, name: str) -> None:
    proposals = make_algorithm(name, kit.materials()).ask()
    assert [p.origin for p in proposals[:3]] == ["mechanism:mha", "mechanism:ssqa", "sample"]


@every_algorithm
def test_algorithm_a_population_smaller_than_the_mechanisms(kit: Any, name: str) -> None:
    asked = drive(make_algorithm(name, kit.materials(population=1)), 3)
    assert [len(new_ones(proposals)) for proposals in asked] == [1] * 3
    assert asked[0][0].origin == "mechanism:mha"


@every_algorithm
def test_algorithm_made_and_told_alike_asks_alike(kit: Any, name: str) -> None:
    one, two = (drive(make_algorithm(name, kit.materials(seed=5)), 5) for _ in range(2))
    assert one == two


@every_algorithm
def test_algorithm_another_seed_asks_otherwise(kit: Any, name: str) -> None:
    one, two = (drive(make_algorithm(name, kit.materials(seed=s)), 2) for s in (1, 2))
    assert one != two


@every_algorithm
def test_algorithm_can_be_pickled_between_generations(kit: Any, name: str) -> None:
    algorithm = make_algorithm(name, kit.materials())
    drive(algorithm, 3)
    copy = pickle.loads(pickle.dumps(algorithm))
    assert drive(algorithm, 3) == drive(copy, 3)


@every_algorithm
def test_algorithm_pickled_between_ask_and_tell(kit: Any, name: str) -> None:
    algorithm = make_algorithm(name, kit.materials())
    results = [result_of(p) for p in algorithm.ask()]
    copy = pickle.loads(pickle.dumps(algorithm))
    algorithm.tell(results)
    copy.tell(results)
    assert algorithm.ask() == copy.ask()


@every_algorithm
def test_algorithm_goes_on_when_every_training_failed(kit: Any, name: str) -> None:
    algorithm = make_algorithm(name, kit.materials())
    for _ in range(4):
        new = new_ones(algorithm.ask())
        assert len(new) == 10
        algorithm.tell([None] * 10)


@every_algorithm
@pytest.mark.parametrize("width", [1, 3])
def test_algorithm_takes_any_number_of_objectives(kit: Any, name: str, width: int) -> None:
    asked = drive(make_algorithm(name, kit.materials(width=width)), 4, width)
    assert len(set(keys(asked))) == 40


@every_algorithm
def test_algorithm_ends_when_the_space_is_exhausted(kit: Any, name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("nas.search.novelty.MAX_ATTEMPTS", 200)
    algorithm = make_algorithm(name, kit.materials(space=kit.tiny, population=8))
    found: list[str | None] = []
    for _ in range(8):
        new = new_ones(algorithm.ask())
        found += [p.key for p in new]
        if len(new) < 8:
            break
        algorithm.tell([result_of(p) for p in new])
    assert len(new) < 8
    assert len(found) == len(set(found))
    # There are 50; the rarest is one in five hundred samples.
    assert 40 <= len(found) <= 50


@every_algorithm
def test_algorithm_names_parents_that_were_trained(kit: Any, name: str) -> None:
    asked = drive(make_algorithm(name, kit.materials()), 6)
    trained: set[str] = set()
    for proposals in asked:
        assert {digest for p in proposals for digest in p.parents} <= trained
        trained |= {p.digest for p in new_ones(proposals)}
    assert any(p.parents for p in asked[-1]) is (name != "random")


def test_algorithm_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'nsga2'\?.*random, regularized-evolution"):
        check_algorithm("nsga3")
