"""What a benchmark gives: figures with their spread, a table of them, and a line of history each.

Work that is compared takes turns, so that a noisy minute meets all of it alike. A time is the
fastest of its rounds; a ratio is that of the two fastest, and its spread the middle half of the
ratios of single rounds.
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
        low, high: its middle half over the rounds; a best value may lie outside.
    """

    name: str
    value: float
    unit: str
    low: float
    high: float

    @property
    def spread(self) -> str:
        """The middle half in words."""
        return f"{_number(self.low)} to {_number(self.high)}"

    def __str__(self) -> str:
        return f"{_number(self.value)} {self.unit}"


def interleaved(
    works: Mapping[str, Callable[[], object]], rounds: int, least_seconds: float = 0.0
) -> dict[str, list[float]]:
    """Seconds of processor time that each work takes in each round, all in turn.

    Processor time is that of all threads; neighbours on a shared machine change it little.

    Args:
        least_seconds: work that is shorter is repeated for so long, and its fastest time counts.
    """
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            end = time.process_time() + least_seconds
            best = seconds(work)
            while time.process_time() < end:
                best = min(best, seconds(work))
            taken[name].append(best)
    return taken


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call, of all threads of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


def fastest(name: str, samples: Sequence[float], unit: str) -> Figure:
    """The least of the rounds."""
    return Figure(name, min(samples), unit, *_middle_half(samples))


def rate(name: str, count: int, samples: Sequence[float], unit: str) -> Figure:
    """``count`` things by the seconds that they took, the fastest round."""
    return Figure(name, count / min(samples), unit, *_middle_half([count / s for s in samples]))


def ratio(name: str, slow: Sequence[float], fast: Sequence[float]) -> Figure:
    """How many times as long ``slow`` takes as ``fast``; their rounds are the same rounds."""
    single = [a / b for a, b in zip(slow, fast, strict=True)]
    return Figure(name, min(slow) / min(fast), TIMES, *_middle_half(single))


def print_table(results: Mapping[str, Sequence[Figure]]) -> None:
    """All figures of all benchmarks that ran."""
    width = max((len(f.name) for figures in results.values() for f in figures), default=0)
    print(f"\n{'benchmark':12}{'figure':{width + 2}}{'value':>12} {'unit':16}middle half of rounds")
    for benchmark, figures in results.items():
        for figure in figures:
            print(
                f"{benchmark:12}{figure.name:{width + 2}}{_number(figure.value):>12} "
                f"{figure.unit:16}{figure.spread}"
            )


def remember(
    history: Path, benchmark: str, figures: Sequence[Figure], machine: Mapping[str, str]
) -> None:
    """Append one line of JSON: date, benchmark, machine, and [value, low, high, unit] by name."""
    assert len({f.name for f in figures}) == len(figures), f"{benchmark}: a name stands twice"
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "benchmark": benchmark,
        **machine,
        "figures": {f.name: [f.value, f.low, f.high, f.unit] for f in figures},
    }
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _middle_half(samples: Sequence[float]) -> tuple[float, float]:
    if len(samples) < 2:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
