"""NSGA-II keeps the best, and no failure beats a success."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nas.common.pareto import non_dominated
from nas.genome.mechanisms import mechanism
from nas.searching.algorithm import Costs, TrialResult
from nas.searching.nsga2 import Nsga2

MHA = mechanism("mha").genome


def results_of(first: int, *costs: Costs | None) -> list[TrialResult]:
    return [
        TrialResult(first + i, MHA, f"{first + i:016x}", f"{first + i:016x}", one)
        for i, one in enumerate(costs)
    ]


def numbers(algorithm: Nsga2) -> set[int]:
    return {member.number for member in algorithm.members}


@pytest.mark.parametrize(("size", "width"), [(1, 2), (10, 3)])
def test_nsga2_keeps_the_whole_front_and_drops_the_dominated(
    kit: Any, size: int, width: int
) -> None:
    """The front is smaller than the population of 30; ``size`` results arrive at a time."""
    algorithm = Nsga2(
        kit.context(population=30, objectives=(kit.accuracy, kit.macs, kit.params)[:width])
    )
    rows = [tuple(row) for row in np.random.default_rng(0).random((60, width)).tolist()]
    for first in range(0, 60, size):
        algorithm.tell(results_of(first, *rows[first : first + size]))
        front = set(non_dominated(rows[: first + size]))
        kept = numbers(algorithm)
        assert len(kept) == min(30, first + size)
        assert front <= kept or kept <= front


def test_nsga2_a_failure_survives_only_where_successes_are_too_few(kit: Any) -> None:
    algorithm = Nsga2(kit.context(population=6))
    algorithm.tell(results_of(0, (5.0, 5.0), None, None, (6.0, 6.0), None, None))
    assert numbers(algorithm) == set(range(6))
    algorithm.tell(results_of(6, (9.0, 9.0), (8.0, 8.0), (7.0, 7.0), None, None, (9.0, 1.0)))
    assert numbers(algorithm) == {0, 3, 6, 7, 8, 11}


def test_nsga2_parents_win_by_rank_and_no_failure_beats_a_success(kit: Any) -> None:
    algorithm = Nsga2(kit.context(population=12))
    algorithm.tell(results_of(0, *[(1.0, 1.0)] * 4, *[(2.0, 2.0)] * 4, *[None] * 4))
    rng = np.random.default_rng(0)
    fathers = [int(algorithm.propose(rng, 0).parents[0], 16) // 4 for _ in range(600)]
    shares = [fathers.count(i) / 600 for i in range(3)]
    # Of two drawn without replacement: both among the last 4 of 12, or none among the first 4.
    assert shares[2] == pytest.approx(6 / 66, abs=0.04)
    assert shares[0] == pytest.approx(1 - 28 / 66, abs=0.06)


def test_nsga2_the_less_crowded_of_a_rank_wins(kit: Any) -> None:
    algorithm = Nsga2(kit.context(population=5))
    algorithm.tell(results_of(0, (0.0, 10.0), (4.9, 5.1), (5.0, 5.0), (5.1, 4.9), (10.0, 0.0)))
    rng = np.random.default_rng(0)
    fathers = [int(algorithm.propose(rng, 0).parents[0], 16) for _ in range(400)]
    assert fathers.count(2) / 400 < 0.05
    assert min(fathers.count(0), fathers.count(4)) / 400 > 0.25
