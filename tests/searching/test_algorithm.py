"""Promises of all algorithms, with and without a lag."""

from __future__ import annotations

from functools import partial
from itertools import chain

import pytest

from nas.searching.algorithm import TrialResult
from nas.space.rules import load_policy, validate
from tests.searching.driving import OBJECTIVES, SPACE, drive, driven, proposer_of, result_of

NAMES = ("nsga2", "random", "regularized-evolution", "surrogate")
LAGS = (None, 4)  # a generation, and a lag that suits a few workers

each_algorithm = pytest.mark.parametrize(
    "name", ["nsga2", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])]
)


@each_algorithm
def test_each_proposal_ends_with_a_new_mechanism(name: str) -> None:
    """Also if trainings fail, and with one or four objectives."""
    searches = [driven(name, lag) for lag in LAGS]
    searches.append(drive(proposer_of(name), 25, lambda p: TrialResult.of(p, None)))
    for width in (1, 4):
        proposer = proposer_of(name, objectives=OBJECTIVES[:width])
        searches.append(drive(proposer, 25, partial(result_of, width=width)))
    for drawn in searches:
        keys = {attempts[-1].key for attempts in drawn if attempts[-1].is_new}
        assert len(keys) == len(drawn)


@each_algorithm
def test_proposals_are_legal_and_lie_in_the_space(name: str) -> None:
    policy = load_policy(SPACE.policy)
    for proposal in chain.from_iterable(driven(name)):
        assert not validate(proposal.genome, policy)
        assert proposal.operator == "mechanism" or not SPACE.excludes(proposal.genome)


@each_algorithm
def test_equal_seeds_and_results_give_equal_proposals_also_after_a_resumption(name: str) -> None:
    for lag in LAGS:
        drawn = driven(name, lag)
        results = [result_of(attempts[-1]) for attempts in drawn]
        for begin in (0, 10, 27):
            end = begin + 12  # more than a generation
            again = proposer_of(name, lag=lag)
            again.follow(p for attempts in drawn[:begin] for p in attempts)
            assert [again.propose(number, results) for number in range(begin, end)] == (
                drawn[begin:end]
            )


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
