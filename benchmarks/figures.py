"""Timing of functions in alternation, figures with their spread, a table and a history of figures.

Compared functions run alternately, so that a change of load affects all of them. A time is the
minimum over the rounds (on a GPU, the median elapsed time). The spread is the interquartile range
over the rounds.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

TIMES: Final = "x"  # the unit of ratios


@dataclass(frozen=True)
class Figure:
    """One number of a benchmark.

    Attributes:
        low: lower quartile over the rounds; a minimum may lie below.
        high: upper quartile over the rounds.
    """

    name: str
    value: float
    unit: str
    low: float
    high: float

    @property
    def spread(self) -> str:
        """Return both quartiles as text."""
        return f"{_number(self.low)} to {_number(self.high)}"

    def __str__(self) -> str:
        return f"{_number(self.value)} {self.unit}"


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


def single(name: str, value: float, unit: str) -> Figure:
    """Return a figure without spread: measured once, or equal in all rounds."""
    return Figure(name, value, unit, value, value)


def fastest(name: str, samples: Sequence[float], unit: str) -> Figure:
    """Return the minimum over the rounds."""
    return Figure(name, min(samples), unit, *_quartiles(samples))


def median(name: str, samples: Sequence[float], unit: str) -> Figure:
    """Return the median over the rounds."""
    return Figure(name, statistics.median(samples), unit, *_quartiles(samples))


def rate(name: str, count: int, samples: Sequence[float], unit: str) -> Figure:
    """Return ``count`` divided by the seconds of the fastest round."""
    return Figure(name, count / min(samples), unit, *_quartiles([count / s for s in samples]))


def ratio(name: str, slow: Sequence[float], fast: Sequence[float]) -> Figure:
    """Return the time of ``slow`` divided by the time of ``fast``.

    The value is the ratio of the fastest rounds; the spread is over the ratios of single rounds.
    """
    of_rounds = [a / b for a, b in zip(slow, fast, strict=True)]
    return Figure(name, min(slow) / min(fast), TIMES, *_quartiles(of_rounds))


def print_table(results: Mapping[str, Sequence[Figure]]) -> None:
    """Print all figures of all benchmarks."""
    width = max((len(f.name) for figures in results.values() for f in figures), default=0)
    print(f"\n{'benchmark':12}{'figure':{width + 2}}{'value':>12} {'unit':16}middle half of rounds")
    for benchmark, figures in results.items():
        for figure in figures:
            print(
                f"{benchmark:12}{figure.name:{width + 2}}{_number(figure.value):>12} "
                f"{figure.unit:16}{figure.spread}"
            )


def append_history(
    history: Path, benchmark: str, figures: Sequence[Figure], machine: Mapping[str, str]
) -> None:
    """Append a JSON line to the history: date, benchmark, machine and figures.

    A figure is [value, low, high, unit], by its name.
    """
    assert len({f.name for f in figures}) == len(figures), f"{benchmark}: duplicate name"
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "benchmark": benchmark,
        **machine,
        "figures": {f.name: [f.value, f.low, f.high, f.unit] for f in figures},
    }
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _quartiles(samples: Sequence[float]) -> tuple[float, float]:
    if len(samples) < 2:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
