"""Simulate ladders with a known law and known speed-ups: how often do the intervals hold?"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from benchmarks.rows import Row
from nas.common.scaling import Estimate, Scaling, SizeScores

IRREDUCIBLE, SCALE, EXPONENT = 1.2, 0.9, 0.2
LADDERS: Final = 500
TIME: Final = 1.2  # of the mechanism's trainings, relative to the reference's
TIME_SPREAD: Final = 0.04
FACTOR: Final = 16.0  # of the projection
SIZES: Final = (1 / 16, 1 / 4, 1.0, 4.0)


def constant(compute: float) -> float:
    """A speed-up that is the same at each size."""
    return 1.3


def falling(compute: float) -> float:
    """A speed-up that falls by a fifth with ten times the compute."""
    return float(1.3 * compute ** np.log10(0.8))


CASES: Final[dict[str, dict[str, Any]]] = {
    "five seeds": {},
    "three seeds": {"seeds": 3},
    "falling speed-up": {"speedup": falling},
    "noise .02 to .007": {"noise": (0.02, 0.015, 0.01, 0.007)},
    "noise .006 to .018": {"noise": (0.006, 0.009, 0.012, 0.018)},
    "correlation .9 in a pair": {"shared": 0.9},
    "no correlation in a pair": {"shared": 0.0},
    "three sizes": {"sizes": (1 / 16, 1 / 2, 4.0), "noise": (0.012,) * 3},
}


def scaling(options: Namespace) -> Iterator[Row]:
    """Yield the shares of simulated ladders whose intervals contain the true values."""
    for name, case in CASES.items():
        yield _row(name, np.random.default_rng(options.seed), **case)


def simulate(
    rng: np.random.Generator,
    *,
    sizes: tuple[float, ...] = SIZES,
    seeds: int = 5,
    noise: tuple[float, ...] = (0.012,) * 4,
    shared: float = 0.5,
    speedup: Callable[[float], float] = constant,
) -> list[SizeScores]:
    """Return the scores of one ladder; ``shared`` is the correlation of the losses of a pair."""
    scores = []
    for compute, deviation in zip(sizes, noise, strict=True):
        common, *own = rng.normal(size=(3, seeds))
        errors = [deviation * (shared**0.5 * common + (1 - shared) ** 0.5 * each) for each in own]
        equal = speedup(compute) * TIME * compute
        losses = [
            IRREDUCIBLE + SCALE * c**-EXPONENT + error
            for c, error in zip((compute, equal), errors, strict=True)
        ]
        times = TIME * np.exp(TIME_SPREAD * rng.normal(size=seeds))
        scores.append(SizeScores(compute, np.transpose(losses), times))
    return scores


def _row(name: str, rng: np.random.Generator, **case: Any) -> Row:
    speedup, sizes = case.get("speedup", constant), case.get("sizes", SIZES)
    true = [
        *(speedup(compute) for compute in sizes),
        speedup(10.0) / speedup(1.0),
        speedup(FACTOR * sizes[-1]),
    ]
    found = [_estimates(simulate(rng, **case)) for _ in range(LADDERS)]
    held = [
        sum((e.low or 0.0) <= value <= (e.high or np.inf) for e in estimates) / LADDERS
        for value, estimates in zip(true, zip(*found, strict=True), strict=True)
    ]
    ratios = [e.high / e.low for *_, e, _, _ in found if e.low and e.high]
    return {
        "case": name,
        "least share of speed-ups": min(held[:-2]),
        "largest share of speed-ups": max(held[:-2]),
        "share of changes": held[-2],
        "share of projections": held[-1],
        "high / low at the largest size": float(np.median(ratios)),
    }


def _estimates(scores: list[SizeScores]) -> list[Estimate]:
    evidence = Scaling(scores, 0.0)
    return [*evidence.speedups(), *evidence.trend(FACTOR)]
