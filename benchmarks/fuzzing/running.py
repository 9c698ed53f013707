"""Run many fuzzer inputs of all kinds, each with its own seed."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.fuzzing import arguments, folders, records, subjects
from benchmarks.fuzzing.watching import Observation, observe, observe_apart

# Number of inputs of each kind per 101.
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
    folders.folder: 1,
}
KINDS: Final = {make.__name__: make for make in SHARES}


@dataclass(frozen=True)
class Input:
    """The identity of an input, and its observed effects."""

    kind: str
    seed: int
    number: int
    observation: Observation

    @property
    def name(self) -> str:
        """Return the command-line options that reproduce the input."""
        return f"--kind {self.kind} --seed {self.seed} --number {self.number}"


def run_inputs(count: int, seed: int, folder: Path, kind: str | None = None) -> Iterator[Input]:
    """Run ``count`` inputs of one kind, or of all kinds in a fixed order by their shares."""
    kinds = [make.__name__ for make, share in SHARES.items() for _ in range(share)]
    kinds = kinds if kind is None else [kind]
    order = np.random.default_rng(0).permutation(len(kinds))
    for number in range(count):
        yield run_input(kinds[order[number % len(kinds)]], seed, number, folder)


def run_input(kind: str, seed: int, number: int, folder: Path) -> Input:
    """Run one input in a folder, which earlier inputs may have used."""
    sys.dont_write_bytecode = True
    place = folder / kind
    place.mkdir(exist_ok=True)
    os.environ["NAS_CACHE"] = str(place / "cache")
    rng = np.random.default_rng([[*KINDS].index(kind), seed, number])
    work = KINDS[kind](rng, place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        watch = observe_apart if kind == "folder" else observe
        return Input(kind, seed, number, watch(work, place))
