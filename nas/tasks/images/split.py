"""Draw two class-balanced parts of labelled items, reproducibly from a seed.

Both parts are interleaved by class, so that every prefix is balanced too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def draw_two(
    labels: NDArray[np.int64], first: int, second: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of two disjoint parts of about ``first`` and ``second`` items.

    If there are fewer items, all are drawn and divided in proportion. If each class has enough,
    the second part does not depend on the size of the first.

    Args:
        labels: (n,), n >= 2.
    """
    order = _interleaved(labels, rng)[: first + second]
    size = round(second * len(order) / (first + second))
    quotas = _quotas(labels[order], min(max(size, 1), len(order) - 1))
    in_second = _ranks(labels[order]) < quotas[labels[order]]
    return order[~in_second], order[in_second]


def _interleaved(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """All indices, shuffled within each class; the classes alternate."""
    shuffled = rng.permutation(len(labels))
    ranks = _ranks(labels[shuffled])
    interleaved: NDArray[np.int64] = shuffled[np.lexsort((labels[shuffled], ranks))]
    return interleaved


def _ranks(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of items of the same class before each item."""
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], labels[order])
    ranks = np.empty_like(labels)
    ranks[order] = np.arange(len(labels)) - starts
    return ranks


def _quotas(labels: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The number of items of each class in a part of ``size`` items, by largest remainders.

    The other part keeps an item of each class if there are enough.
    """
    counts = np.bincount(labels)
    spare = np.maximum(counts - 1, 0)
    most = spare if spare.sum() >= size else counts
    exact = counts * (size / len(labels))
    quotas: NDArray[np.int64] = np.minimum(np.floor(exact).astype(np.int64), most)
    while missing := size - int(quotas.sum()):
        takers = np.flatnonzero(quotas < most)
        by_remainder = takers[np.argsort((quotas - exact)[takers], kind="stable")]
        quotas[by_remainder[:missing]] += 1
    return quotas
