"""Promises of all algorithms, with and without a lag."""

from __future__ import annotations

from typing import Any

import pytest

from nas.common.errors import ConfigError
from nas.searching.algorithm import ALGORITHMS
from nas.testing import check_algorithm
from nas.testing.algorithms import drive, driven

NAMES = ("nsga2", "random", "regularized-evolution", "local-search", "surrogate")
every_algorithm = pytest.mark.parametrize("name", NAMES)
both_forms = pytest.mark.parametrize("lag", [None, 4])


@every_algorithm
def test_algorithm_keeps_its_promises(name: str) -> None:
    check_algorithm(name)


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
@both_forms
def test_offspring_have_parents_except_in_random_search(name: str, lag: int | None) -> None:
    last_generation = driven(name, lag)[-10:]
    assert any(p.parents for ps in last_generation for p in ps) is (name != "random")


def test_unknown_algorithm_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'nsga2'\?") as caught:
        ALGORITHMS["nsga3"]
    assert all(name in str(caught.value) for name in NAMES)
    assert set(NAMES) <= set(ALGORITHMS.names())
