"""What NSGA-II promises: the best survive, a failure never beats a success."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nas.pareto import non_dominated
from nas.search.algorithm import Result
from nas.search.novelty import Proposed, new_ones
from nas.search.nsga2 import PROPOSED, Nsga2


def survivors(algorithm: Nsga2) -> list[Proposed]:
    return [individual.get(PROPOSED) for individual in algorithm._engine.pop]


def told(algorithm: Nsga2, results: Sequence[Result]) -> list[Proposed]:
    new = new_ones(algorithm.ask())
    algorithm.tell(results)
    return new


def test_nsga2_keeps_the_whole_front_and_drops_the_dominated(kit: Any) -> None:
    algorithm = Nsga2(kit.materials(population=10))
    rng = np.random.default_rng(0)
    costs: dict[str, tuple[float, ...]] = {}
    for _ in range(6):
        drawn = [tuple(row) for row in rng.random((10, 2)).tolist()]
        costs |= {p.digest: c for p, c in zip(told(algorithm, drawn), drawn, strict=True)}
        names, rows = list(costs), list(costs.values())
        front = {names[i] for i in non_dominated(rows)}
        kept = {p.digest for p in survivors(algorithm)}
        assert len(kept) == 10
        assert front <= kept or kept <= front


def test_nsga2_a_failure_survives_only_where_successes_are_too_few(kit: Any) -> None:
    algorithm = Nsga2(kit.materials(population=6))
    first = told(algorithm, [(5.0, 5.0), None, None, (6.0, 6.0), None, None])
    assert set(survivors(algorithm)) == set(first)
    second = told(algorithm, [(9.0, 9.0), (8.0, 8.0), (7.0, 7.0), None, None, (9.0, 1.0)])
    well = {first[0], first[3], second[0], second[1], second[2], second[5]}
    assert set(survivors(algorithm)) == well


def test_nsga2_a_failure_is_never_in_its_optimum(kit: Any) -> None:
    algorithm = Nsga2(kit.materials(population=6))
    first = told(algorithm, [(5.0, 5.0), None, None, (9.0, 9.0), None, None])
    best = [individual.get(PROPOSED) for individual in algorithm._engine.opt]
    assert best == [first[0]]


def test_nsga2_a_failure_wins_no_tournament_against_a_success(kit: Any) -> None:
    algorithm = Nsga2(kit.materials(population=10))
    first = told(algorithm, [(1.0, 1.0)] * 5 + [None] * 5)
    failed = {p.digest for p in first[5:]}
    offspring = algorithm.ask()
    fathers = [p.parents[0] for p in offspring if p.parents]
    # Five of ten: two failures meet in one tournament of five on average.
    assert sum(name in failed for name in fathers) < 0.4 * len(fathers)


def test_nsga2_tells_pymoo_finite_numbers_alone(kit: Any) -> None:
    algorithm = Nsga2(kit.materials(population=4))
    told(algorithm, [None, (1.0, 2.0), None, (2.0, 1.0)])
    costs = algorithm._engine.pop.get("F").astype(float)
    assert all(math.isfinite(x) for x in costs.ravel())


def test_nsga2_equal_costs_are_no_obstacle(kit: Any) -> None:
    algorithm = Nsga2(kit.materials(population=6))
    for _ in range(3):
        told(algorithm, [(1.0, 1.0)] * 6)
    assert len(survivors(algorithm)) == 6
