"""Draw class-balanced parts of a set of labels, the same for the same seed.

Both parts are interleaved by class, so that any beginning of them is balanced too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def draw_two(
    labels: NDArray[np.int64], first: int, second: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of two disjoint parts of about ``first`` and ``second`` items.

    Where there are fewer items than both ask for, all are drawn and shared out in proportion, so
    that each class that has two items is in both parts. The second part does not change with the
    size of the first where there are enough items of each class.

    Args:
        labels: (n,), at least one item of every class.
    """
    order = _interleaved(labels, rng)[: first + second]
    quotas = _quotas(labels[order], second * len(order) / (first + second))
    in_second = _ranks(labels[order]) < quotas[labels[order]]
    return order[~in_second], order[in_second]


def _interleaved(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """All indices: one of each class in turn, shuffled within the class."""
    shuffled = rng.permutation(len(labels))
    ranks = _ranks(labels[shuffled])
    interleaved: NDArray[np.int64] = shuffled[np.lexsort((labels[shuffled], ranks))]
    return interleaved


def _ranks(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many items of the same class stand before each item."""
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], labels[order])
    ranks = np.empty_like(labels)
    ranks[order] = np.arange(len(labels)) - starts
    return ranks


def _quotas(labels: NDArray[np.int64], wanted: float) -> NDArray[np.int64]:
    """How many of each class go to a part of ``wanted`` items: largest remainders first."""
    counts = np.bincount(labels)
    exact = counts * (wanted / len(labels))
    # At least one, and never all, of a class that can be shared.
    quotas = np.clip(np.floor(exact).astype(np.int64), np.minimum(counts - 1, 1), counts - 1)
    missing = round(wanted) - int(quotas.sum())
    open_classes = np.flatnonzero(quotas < counts - 1)
    by_remainder = open_classes[np.argsort(-(exact - quotas)[open_classes], kind="stable")]
    quotas[by_remainder[: max(missing, 0)]] += 1
    return quotas
