"""Promises of all algorithms, with and without a lag."""

from __future__ import annotations

import pytest

from nas.testing import check_algorithm
from nas.testing.algorithms import drive, driven, proposer_of

NAMES = ("nsga2", "random", "regularized-evolution", "surrogate")


@pytest.mark.parametrize(
    "name", ["nsga2", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])]
)
def test_algorithm_keeps_its_promises(name: str) -> None:
    check_algorithm(name)


@pytest.mark.parametrize("name", NAMES)
def test_named_mechanisms_come_first_and_offspring_have_parents(name: str) -> None:
    drawn = driven(name, 4) if name != "surrogate" else drive(proposer_of(name, lag=8), 20)
    first = [p for attempts in drawn[:10] for p in attempts]
    assert [(p.operator, p.name) for p in first[:2]] == [
        ("mechanism", "mha"),
        ("mechanism", "ssqa"),
    ]
    assert {p.operator for p in first[2:]} == {"neighbour"}
    assert any(p.parents for attempts in drawn[-10:] for p in attempts) is (name != "random")
