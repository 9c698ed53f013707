"""The simplest statement of which side a difference is on, to compare displays with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import ttest_rel


def side_by_scipy(scores: Sequence[Any], base: Sequence[Any], direction: str = "max") -> str | None:
    """Return "better", "worse" or "undecided" for trainings with the same seeds.

    None if a training failed, that is, if a value is None.
    """
    if None in scores or None in base:
        return None
    gains = [a - b for a, b in zip(scores, base, strict=True)]
    if len(gains) < 2 or max(gains) - min(gains) < 1e-9:
        return "undecided"
    tested = ttest_rel(scores, base)
    if not tested.pvalue < 0.05:
        return "undecided"
    return "better" if (tested.statistic > 0) == (direction == "max") else "worse"


def corrected_sides(
    scores: Mapping[str, Sequence[Any]], reference: str, direction: str = "max"
) -> dict[str, str | None]:
    """Return the side of each mechanism's difference to a reference, after Holm's correction."""
    sides = {
        name: side_by_scipy(own, scores[reference], direction)
        for name, own in scores.items()
        if name != reference
    }
    is_tested = {name: side is not None and len(scores[name]) > 1 for name, side in sides.items()}
    tested = {
        name: ttest_rel(scores[name], scores[reference]).pvalue
        for name, is_one in is_tested.items()
        if is_one
    }
    ordered = sorted(tested, key=tested.__getitem__)
    for rank, name in enumerate(ordered):
        if not tested[name] * (len(ordered) - rank) < 0.05:
            sides |= dict.fromkeys(ordered[rank:], "undecided")
            break
    return sides
