"""The simplest statement of which side a difference is on, to compare displays with."""

from __future__ import annotations

from collections.abc import Sequence
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
