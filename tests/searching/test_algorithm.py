"""Promises of all algorithms, with and without a lag."""

from __future__ import annotations

from typing import Any

import pytest

from nas.common.errors import ConfigError
from nas.searching.algorithm import ALGORITHMS
from nas.testing.algorithms import PROMISES, drive, driven
from nas.testing.promises import Promise, keep

NAMES = ("nsga2", "random", "regularized-evolution", "local-search", "surrogate")
every_algorithm = pytest.mark.parametrize("name", NAMES)
both_forms = pytest.mark.parametrize("lag", [None, 4])


@every_algorithm
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_algorithm_keeps_its_promise(promise: Promise, name: str) -> None:
    keep(name, [promise], name)


@every_algorithm
@both_forms
def test_named_mechanisms_are_proposed_first(kit: Any, name: str, lag: int | None) -> None:
    drawn = drive(kit.proposer(name, lag), 10)
    first = [p for attempts in drawn for p in attempts]
    assert [(p.operator, p.name) for p in first[:2]] == [
        ("mechanism", "mha"),
        ("mechanism", "ssqa"),
    ]
    assert {p.operator for p in first[2:]} == {"neighbour"}


@every_algorithm
def test_population_smaller_than_the_number_of_named_mechanisms(kit: Any, name: str) -> None:
    drawn = drive(kit.proposer(name, population=1), 3)
    assert drawn[0][0].name == "mha"
    assert all(p.name is None for attempts in drawn[1:] for p in attempts)


@every_algorithm
@both_forms
def test_offspring_have_parents_except_in_random_search(name: str, lag: int | None) -> None:
    last_generation = driven(name, lag)[-10:]
    assert any(p.parents for ps in last_generation for p in ps) is (name != "random")


def test_unknown_algorithm_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'nsga2'\?") as caught:
        ALGORITHMS.get("nsga3")
    assert all(name in str(caught.value) for name in NAMES)
    assert set(NAMES) <= set(ALGORITHMS.names())
