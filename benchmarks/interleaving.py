"""Repeated timing of functions in alternation, so that a change of load affects all of them.

A time is the minimum over the rounds (on a GPU, the median elapsed time).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks.rows import Spread


def interleaved(
    works: Mapping[str, Callable[[], object]],
    rounds: int,
    least_seconds: float = 0.0,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Call functions alternately; return the seconds of each function in each round.

    One round before the others is not counted.

    Args:
        least_seconds: time for which a short function is repeated; its fastest call counts.
        clock: clock in seconds; by default processor time of all threads of this process, which
            other load on the machine changes little.
    """
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            begin = start = clock()
            work()
            best = clock() - start
            while number and clock() < begin + least_seconds:
                start = clock()
                work()
                best = min(best, clock() - start)
            if number:
                taken[name].append(best)
    return taken


def fastest(samples: Sequence[float]) -> Spread:
    """Return the minimum over the rounds, with their quartiles."""
    return Spread(min(samples), *_quartiles(samples))


def median(samples: Sequence[float]) -> Spread:
    """Return the median over the rounds, with their quartiles."""
    return Spread(statistics.median(samples), *_quartiles(samples))


def ratio(slow: Sequence[float], fast: Sequence[float]) -> Spread:
    """Return the ratio of the fastest rounds, with the quartiles of the rounds' ratios."""
    return Spread(min(slow) / min(fast), *_quartiles(_of_rounds(slow, fast)))


def median_ratio(slow: Sequence[float], fast: Sequence[float]) -> Spread:
    """Return the median of the rounds' ratios, with their quartiles."""
    return median(_of_rounds(slow, fast))


def _of_rounds(slow: Sequence[float], fast: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(slow, fast, strict=True)]


def _quartiles(samples: Sequence[float]) -> tuple[float, float]:
    if len(samples) < 2:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high
