"""Pareto dominance: fronts, knees and hypervolumes.

Rows are candidates and columns objectives, as costs: lower is better (see ``as_costs``). A row with
NaN or an infinity is in no front. Reading a recorded front imports neither NumPy nor moocore, which
takes a quarter of a second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from nas.common.objectives import Objective, as_costs

Costs: TypeAlias = Sequence[float]


def dominates(a: Costs, b: Costs) -> bool:
    """Return whether ``a`` is no worse than ``b`` in any column and better in one; not with NaN."""
    return all(x <= y for x, y in zip(a, b, strict=True)) and tuple(a) != tuple(b)


def non_dominated(rows: Sequence[Costs]) -> list[int]:
    """Return the indices of the finite rows that no other row dominates, ascending.

    Equal rows are all returned or all left out. In lexicographic order only earlier rows dominate a
    row. (Kung, Luccio and Preparata 1975, "On finding the maxima of a set of vectors".)
    """
    finite = [i for i, row in enumerate(rows) if all(map(math.isfinite, row))]
    front: list[int] = []
    for i in sorted(finite, key=lambda i: tuple(rows[i])):
        if not any(dominates(rows[member], rows[i]) for member in front):
            front.append(i)
    return sorted(front)


def normalise(rows: Sequence[Costs], ideal: Costs, reference: Costs) -> list[tuple[float, ...]]:
    """Return rows rescaled so that ``ideal`` becomes 0, and ``reference`` 1 where it differs."""
    spans = [worst - best for best, worst in zip(ideal, reference, strict=True)]
    return [
        tuple(
            (value - best) / span if span else 0.0
            for value, best, span in zip(row, ideal, spans, strict=True)
        )
        for row in rows
    ]


def knee(rows: Sequence[Costs]) -> int:
    """Return the index of a front's knee: the row farthest below the plane through the extremes.

    This is the row with the smallest sum, with each column rescaled to 0..1 over the front (Das
    1999, "On characterizing the knee of the Pareto curve"). Ties go to the smaller first column,
    then to the lower index. All costs must be finite.
    """
    columns = list(zip(*rows, strict=True))
    scaled = normalise(rows, [min(c) for c in columns], [max(c) for c in columns])
    # In a front of two members both sums are 1; without rounding, float errors would decide.
    return min(range(len(rows)), key=lambda i: (round(sum(scaled[i]), 12), rows[i][0], i))


def hypervolume(rows: Sequence[Costs], reference: Costs) -> float:
    """Return the volume that the rows dominate up to the reference point.

    Rows that are not below the reference in every column add nothing. (Fonseca et al. 2006, "An
    improved dimension-sweep algorithm for the hypervolume indicator".)
    """
    import moocore

    inside = [row for row in rows if all(x < r for x, r in zip(row, reference, strict=True))]
    # Sorted, so that rounding does not depend on the order of the rows.
    front = sorted({tuple(inside[i]) for i in non_dominated(inside)})
    if not front:
        return 0.0
    if len(reference) == 1:
        return float(reference[0] - front[0][0])
    return float(moocore.hypervolume(front, list(reference)))


def scaled_hypervolume(
    objectives: Sequence[Objective], members: Sequence[Mapping[str, float]]
) -> float:
    """Return the hypervolume of a front, as a fraction of the box between ideals and corners."""
    ideal = [o.as_cost(o.ideal) for o in objectives]
    corner = [o.as_cost(o.corner) for o in objectives]
    scaled = normalise([as_costs(objectives, row) for row in members], ideal, corner)
    return hypervolume(scaled, (1.0,) * len(objectives))
