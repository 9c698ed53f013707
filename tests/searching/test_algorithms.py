"""Promises of all algorithms; what NSGA-II keeps, and what the surrogate expects and finds."""

from __future__ import annotations

import math
from functools import partial
from itertools import chain

import numpy as np
import pytest

from nas.common.pareto import hypervolume, non_dominated
from nas.genome.mechanisms import mechanism
from nas.searching.algorithm import REPEAT, Costs, TrialResult
from nas.searching.archive import Archive, expected_gain
from nas.searching.nsga2 import Nsga2
from nas.space.rules import load_policy, validate
from tests.searching.driving import (
    OBJECTIVES,
    SPACE,
    drive,
    driven,
    make_context,
    proposer_of,
    result_of,
)

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
    assert [p.name for p in first[:2]] == ["mha", "ssqa"]
    assert {p.operator for p in first[:2]} == {"mechanism"}
    assert {p.operator for p in first[2:]} == {"neighbour"}
    assert any(p.parents for attempts in drawn[-10:] for p in attempts) is (name != "random")


MHA = mechanism("mha").genome


def results_of(first: int, *costs: Costs | None) -> list[TrialResult]:
    return [
        TrialResult(first + i, MHA, f"{first + i:016x}", f"{first + i:016x}", one)
        for i, one in enumerate(costs)
    ]


def numbers(algorithm: Nsga2) -> set[int]:
    return {member.number for member in algorithm.members}


@pytest.mark.parametrize(("size", "width"), [(1, 2), (10, 3)])
def test_nsga2_keeps_the_whole_front_and_drops_the_dominated(size: int, width: int) -> None:
    """The front is smaller than the population of 30; ``size`` results arrive at a time."""
    algorithm = Nsga2(make_context(population=30, objectives=OBJECTIVES[:width]))
    rows = [tuple(row) for row in np.random.default_rng(0).random((60, width)).tolist()]
    for first in range(0, 60, size):
        algorithm.tell(results_of(first, *rows[first : first + size]))
        front = set(non_dominated(rows[: first + size]))
        kept = numbers(algorithm)
        assert len(kept) == min(30, first + size)
        assert front <= kept or kept <= front


def test_nsga2_a_failure_survives_only_where_successes_are_too_few() -> None:
    algorithm = Nsga2(make_context(population=6))
    algorithm.tell(results_of(0, (5.0, 5.0), None, None, (6.0, 6.0), None, None))
    assert numbers(algorithm) == set(range(6))
    algorithm.tell(results_of(6, (9.0, 9.0), (8.0, 8.0), (7.0, 7.0), None, None, (9.0, 1.0)))
    assert numbers(algorithm) == {0, 3, 6, 7, 8, 11}


def test_nsga2_parents_win_by_rank_and_no_failure_beats_a_success() -> None:
    algorithm = Nsga2(make_context(population=12))
    algorithm.tell(results_of(0, *[(1.0, 1.0)] * 4, *[(2.0, 2.0)] * 4, *[None] * 4))
    rng = np.random.default_rng(0)
    fathers = [int(algorithm.propose(rng, 0).parents[0], 16) // 4 for _ in range(600)]
    shares = [fathers.count(i) / 600 for i in range(3)]
    # Of two drawn without replacement: both among the last 4 of 12, or none among the first 4.
    assert shares[2] == pytest.approx(6 / 66, abs=0.04)
    assert shares[0] == pytest.approx(1 - 28 / 66, abs=0.06)


def test_nsga2_the_less_crowded_of_a_rank_wins() -> None:
    algorithm = Nsga2(make_context(population=5))
    algorithm.tell(results_of(0, (0.0, 10.0), (4.9, 5.1), (5.0, 5.0), (5.1, 4.9), (10.0, 0.0)))
    rng = np.random.default_rng(0)
    fathers = [int(algorithm.propose(rng, 0).parents[0], 16) for _ in range(400)]
    assert fathers.count(2) / 400 < 0.05
    assert min(fathers.count(0), fathers.count(4)) / 400 > 0.25


LEVELS = 12  # of quality: a landscape that is soon known, under noise


def test_expected_gain_equals_the_mean_over_samples() -> None:
    rng = np.random.default_rng(0)
    front = np.array([[0.2, 0.7], [0.5, 0.4], [0.6, 0.5]])
    for row in ([0.45, 0.5], [0.3, 0.3], [0.55, 0.6]):
        quality = row[0] + 0.1 * rng.standard_normal(2000)
        before = hypervolume(front.tolist(), (1.0, 1.0))
        after = [hypervolume([*front.tolist(), [q, row[1]]], (1.0, 1.0)) for q in quality]
        found = expected_gain(front, np.array(row), np.array([0.1, 0.0]))
        assert found == pytest.approx(np.mean(after) - before, rel=0.15, abs=5e-4)


def test_surrogate_reevaluates_under_noise() -> None:
    """The quality is computed from the key, plus noise of each training."""
    lag = 8
    proposer = proposer_of("surrogate", lag=lag, most_trainings=math.inf)
    rng, results, drawn = np.random.default_rng(0), [], []
    for number in range(60):
        drawn.append(proposer.propose(number, results[: max(0, number - lag + 1)])[-1])
        quality = int(str(drawn[-1].key), 16) % LEVELS / 20 + 0.05 * rng.standard_normal()
        results.append(TrialResult.of(drawn[-1], [(-quality, drawn[-1].costs["macs"])]))
    again = [p for p in drawn if p.operator == REPEAT and p.number % 10 != 9]
    assert again
    for proposal in again:
        first = next(p for p in drawn if p.key == proposal.key)
        assert first.number < proposal.number
        for field in ("costs", "name", "genome"):
            assert getattr(first, field) == getattr(proposal, field)
        assert proposal.verdict == "repeated"


@pytest.mark.slow
def test_surrogate_avoids_mechanisms_that_will_miss_a_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    def num_missed() -> int:
        """Number of the last proposals of a search that miss a gate: those with a GELU."""
        proposer, missed = proposer_of("surrogate", lag=1), []
        results: list[TrialResult] = []
        for number in range(70):
            proposal = proposer.propose(number, results)[-1]
            missed.append(any(node.op == "gelu" for node in proposal.genome.nodes))
            row = (-(int(str(proposal.key), 16) % LEVELS) / 20, proposal.costs["macs"])
            results.append(TrialResult.of(proposal, [row], is_ok=not missed[-1]))
        return sum(missed[30:])

    informed = num_missed()
    monkeypatch.setattr(Archive, "p_feasible", lambda _, candidates: np.ones(len(candidates)))
    uninformed = num_missed()
    assert informed < 0.6 * uninformed, (informed, uninformed)
