"""Regularised evolution: the oldest leave, whatever they were worth."""

from __future__ import annotations

from typing import Any

from nas.search.aging import GENERATIONS_ALIVE, RegularizedEvolution
from nas.search.novelty import new_ones


def test_aging_the_oldest_leave_even_the_best(kit: Any) -> None:
    algorithm = RegularizedEvolution(kit.materials(population=4))
    best = new_ones(algorithm.ask())
    algorithm.tell([(0.0, 0.0)] * 4)
    for _ in range(GENERATIONS_ALIVE):
        algorithm.ask()
        algorithm.tell([(1.0, 1.0)] * 4)
    parents = {digest for p in algorithm.ask() for digest in p.parents}
    assert parents
    assert parents.isdisjoint(p.digest for p in best)


def test_aging_a_failure_is_never_a_parent(kit: Any) -> None:
    algorithm = RegularizedEvolution(kit.materials(population=6))
    new = new_ones(algorithm.ask())
    algorithm.tell([None, (1.0, 1.0), None, (2.0, 0.0), None, None])
    parents = {digest for p in algorithm.ask() for digest in p.parents}
    assert parents == {new[1].digest, new[3].digest}


def test_aging_the_non_dominated_of_a_sample_are_parents(kit: Any) -> None:
    algorithm = RegularizedEvolution(kit.materials(population=8))
    new = new_ones(algorithm.ask())
    algorithm.tell([(float(i), float(i)) for i in range(8)])
    parents = {digest for p in algorithm.ask() for digest in p.parents}
    # Two of eight meet: the last never wins.
    assert new[7].digest not in parents
