"""Many inputs of all kinds, each from a seed of its own."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.fuzzing import arguments, records, subjects
from benchmarks.fuzzing.watching import Seen, watched

# How many of a hundred inputs are of a kind.
SHARES: Final[dict[Any, int]] = {
    subjects.genome: 20,
    subjects.source: 8,
    subjects.space: 6,
    subjects.policy: 10,
    subjects.task: 10,
    subjects.journal: 8,
    subjects.table: 6,
    subjects.images: 4,
    subjects.texts: 3,
    subjects.weights: 4,
    records.database: 10,
    records.report: 4,
    arguments.arguments: 7,
}
KINDS: Final = {make.__name__: make for make in SHARES}


@dataclass(frozen=True)
class Input:
    """One input and what it did."""

    kind: str
    seed: int
    number: int
    seen: Seen

    @property
    def name(self) -> str:
        """What makes it again."""
        return f"--kind {self.kind} --seed {self.seed} --number {self.number}"


def inputs(count: int, seed: int, folder: Path) -> Iterator[Input]:
    """So many inputs, kinds by turns in their shares."""
    turns = [make.__name__ for make, share in SHARES.items() for _ in range(share)]
    order = np.random.default_rng(0).permutation(len(turns))
    for number in range(count):
        kind = turns[order[number % len(turns)]]
        yield one(kind, seed, number, folder)


def one(kind: str, seed: int, number: int, folder: Path) -> Input:
    """The input of that name, in a folder that is empty or was used for others."""
    sys.dont_write_bytecode = True
    place = folder / kind
    place.mkdir(exist_ok=True)
    os.environ["NAS_CACHE"] = str(place / "cache")
    rng = np.random.default_rng([[*KINDS].index(kind), seed, number])
    work = KINDS[kind](rng, place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Input(kind, seed, number, watched(work, place))
