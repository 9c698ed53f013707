"""Fronts and hypervolume against the plainest references."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from nas.common.pareto import dominates, hypervolume, non_dominated

NAN, INF = math.nan, math.inf


def brute_front(rows: list[tuple[float, ...]]) -> list[int]:
    finite = [i for i, row in enumerate(rows) if all(math.isfinite(x) for x in row)]
    return [i for i in finite if not any(dominates(rows[j], rows[i]) for j in finite)]


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
