"""Spearman's rank correlation between tasks, over mean scores of mechanisms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np

MIN_MECHANISMS: Final = 10  # a rank correlation of fewer is too uncertain
NUM_DRAWS: Final = 1000


def rank_correlations(
    scores: Mapping[str, Mapping[str, float]],
) -> Iterator[dict[str, Any]]:
    """Rank correlations with 95 % bootstrap intervals, of task pairs with ten common mechanisms.

    Args:
        scores: mean scores by task and mechanism; higher is better.
    """
    for first, second in combinations(scores, 2):
        shared = [name for name in scores[first] if name in scores[second]]
        if len(shared) >= MIN_MECHANISMS:
            rho, low, high = _rho(*([scores[t][name] for name in shared] for t in (first, second)))
            yield {
                "tasks": [first, second],
                "mechanisms": len(shared),
                "rho": rho,
                "low": low,
                "high": high,
            }


def _rho(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """Correlation and bootstrap interval over mechanisms."""
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    pairs, rng = np.array([a, b]), np.random.default_rng(0)
    drawn = pairs[:, rng.integers(len(a), size=(NUM_DRAWS, len(a)))]
    ranks = rankdata(np.concatenate([pairs[:, None], drawn], axis=1), axis=2)
    apart = ranks - ranks.mean(axis=2, keepdims=True)
    x, y = apart
    sizes = np.sqrt((x**2).sum(1) * (y**2).sum(1))
    rho = (x * y).sum(1) / np.where(sizes > 0, sizes, 1.0)
    low, high = np.quantile(rho[1:], (0.025, 0.975))
    return float(rho[0]), float(low), float(high)
