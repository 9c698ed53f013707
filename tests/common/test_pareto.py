"""Dominance, fronts, knees and hypervolume against the plainest references."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from nas.common.pareto import dominates, hypervolume, knee, non_dominated, normalise

NAN, INF = math.nan, math.inf


def brute_front(rows: list[tuple[float, ...]]) -> list[int]:
    finite = [i for i, row in enumerate(rows) if all(math.isfinite(x) for x in row)]
    return [i for i in finite if not any(dominates(rows[j], rows[i]) for j in finite)]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((1, 1), (2, 2), True),
        ((1, 2), (2, 1), False),
        ((1, 1), (1, 1), False),
        ((1, 1), (1, 2), True),
        ((NAN, 1), (2, 2), False),
        ((1, 1), (NAN, 2), False),
    ],
)
def test_dominates(a: tuple[float, ...], b: tuple[float, ...], expected: bool) -> None:
    assert dominates(a, b) is expected


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_non_dominated_equals_brute_force(width: int) -> None:
    rng = np.random.default_rng(width)
    for _ in range(100):
        # Few distinct values, so that ties and equal rows are common.
        rows = [tuple(row) for row in rng.integers(0, 6, (rng.integers(0, 30), width)).tolist()]
        assert non_dominated(rows) == brute_front(rows)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_non_dominated_leaves_out_rows_that_are_not_finite(bad: float) -> None:
    assert non_dominated([(bad, -9.0), (1.0, 1.0), (-9.0, bad)]) == [1]
    assert non_dominated([(bad, bad)]) == []


def test_normalise_maps_ideal_to_zero_and_reference_to_one() -> None:
    rows = normalise([(-1.0, 0.0), (-0.1, 200.0), (-0.55, 50.0)], (-1.0, 0.0), (-0.1, 200.0))
    assert rows == [(0.0, 0.0), (1.0, 1.0), pytest.approx((0.5, 0.25))]
    assert normalise([(3.0, 1.0)], (3.0, 0.0), (3.0, 2.0)) == [(0.0, 0.5)]


def test_knee_is_farthest_below_the_plane() -> None:
    assert knee([(0.3, 5.0)]) == 0
    assert knee([(0.0, 10.0), (1.0, 1.0), (10.0, 0.0)]) == 1
    assert knee([(0.0, 1e9), (0.5, 9e8), (1.0, 0.0), (0.4, 4e8)]) == 3


def test_hypervolume_of_boxes_by_hand() -> None:
    assert hypervolume([], (1.0, 1.0)) == 0.0
    assert hypervolume([(0.0, 0.0)], (1.0, 2.0)) == 2.0
    assert hypervolume([(0.0, 0.5), (0.5, 0.0)], (1.0, 1.0)) == 0.75
    assert hypervolume([(0.25,), (0.5,)], (1.0,)) == 0.75
    assert hypervolume([(0.5, 0.5), (1.0, 0.0), (0.0, 2.0), (NAN, 0.0)], (1.0, 1.0)) == 0.25


@pytest.mark.parametrize("width", [2, 3, 4])
def test_hypervolume_equals_counting_cells(width: int) -> None:
    rng = np.random.default_rng(width)
    side = 5
    for _ in range(10):
        rows = [tuple(row) for row in rng.integers(0, side, (12, width)).tolist()]
        cells = itertools.product(range(side), repeat=width)
        covered = sum(
            any(all(x <= c for x, c in zip(row, cell, strict=True)) for row in rows)
            for cell in cells
        )
        assert hypervolume(rows, (side,) * width) == covered
