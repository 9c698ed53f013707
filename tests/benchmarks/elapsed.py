"""Elapsed time of work on a device, and figures of it: medians of interleaved rounds.

Processor time, which the other benchmarks count, says nothing of a GPU; it is waited for before
and after.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles

import torch

from tests.benchmarks.figures import TIMES, Figure


def interleaved_on(
    works: Mapping[str, Callable[[], None]], rounds: int, device: torch.device
) -> dict[str, list[float]]:
    """Elapsed seconds of each work in each round; the round before the first warms up."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            wait_for(device)
            start = time.perf_counter()
            work()
            wait_for(device)
            if number:
                taken[name].append(time.perf_counter() - start)
    return taken


def wait_for(device: torch.device) -> None:
    """Until it has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def median_of(name: str, samples: Sequence[float], unit: str) -> Figure:
    """The median of the rounds."""
    low, high = (min(samples), max(samples)) if len(samples) < 2 else _quarters(samples)
    return Figure(name, median(samples), unit, low, high)


def ratio_of(name: str, slow: Sequence[float], fast: Sequence[float]) -> Figure:
    """The median of the rounds' ratios."""
    return median_of(name, [a / b for a, b in zip(slow, fast, strict=True)], TIMES)


def _quarters(samples: Sequence[float]) -> tuple[float, float]:
    low, _, high = quantiles(samples, n=4, method="inclusive")
    return low, high


def print_figures(figures: Sequence[Figure]) -> None:
    """A line each."""
    for figure in figures:
        print(f"  {figure.name:52}{figure!s:>20}   {figure.spread}", flush=True)
