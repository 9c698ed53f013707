"""What a candidate costs the driver itself: the search without its trainings.

One process proposes (NSGA-II, variation, canonical form, novelty), validates, and writes proposals,
results and fronts to the run's database; workers only train. An evaluator that answers at once
takes their place, so that what remains is the driver's own processor time.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nas.evaluation.choices import Choices
from nas.evaluation.record import Evaluation, Job
from nas.search.listener import Silent
from nas.search.loop import Loop
from nas.search.setup import Settings, frozen_algorithm, make_setup
from nas.space import load_space
from nas.store import Document, Session, create_run
from tests.benchmarks.figures import Figure, fastest

if TYPE_CHECKING:
    from nas.search.algorithm import Algorithm, Result
    from nas.search.novelty import Proposed

SPACES: Final = ("quickstart", "attention_v1", "attention_v2")
SIZES: Final = {"dim": 64, "heads": 4, "depth": 2}
POPULATION: Final = 50
GENERATIONS: Final = 10
ROUNDS: Final = 3


def driver(options: argparse.Namespace) -> list[Figure]:
    """Milliseconds of processor time a candidate, and which part of it goes into proposing."""
    print(
        f"\nthe driver's own processor time a candidate, ms: {GENERATIONS} generations of "
        f"{POPULATION}, instant trainings, best of {ROUNDS} seeds"
    )
    print(f"  {'space':16}{'ms':>8}{'proposing':>11}{'recording':>11}")
    figures = []
    for space in SPACES:
        rounds = [measure_search(space, seed) for seed in range(ROUNDS)]
        best = min(rounds, key=lambda spent: spent.total)
        recording = best.total - best.proposing
        print(f"  {space:16}{best.total:8.2f}{best.proposing:11.2f}{recording:11.2f}")
        figures.append(fastest(space, [spent.total for spent in rounds], "ms a candidate"))
    return figures


@dataclass(frozen=True)
class Spent:
    """Milliseconds of processor time a candidate: all, and that of the algorithm's part."""

    total: float
    proposing: float


def measure_search(name: str, seed: int) -> Spent:
    """A whole search in a folder that goes away."""
    settings = Settings("nsga2", POPULATION, GENERATIONS, seed)
    task = Document("instant", "name: instant\n", "0" * 16)
    setup = make_setup(load_space(name), task, settings, num_classes=10, mha={"macs": 1e6})
    with tempfile.TemporaryDirectory() as folder:
        session = Session("python -m tests.benchmarks driver", {}, "any")
        with create_run(Path(folder), setup, session) as writer:
            algorithm = Timed(frozen_algorithm(setup, **SIZES))
            start = time.process_time()
            Loop(writer, algorithm, Instant(), Silent()).run()
            taken = time.process_time() - start
            count = len(writer.run.evaluations())
    return Spent(1e3 * taken / count, 1e3 * algorithm.seconds / count)


class Timed:
    """An algorithm whose processor time is counted."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self.seconds = 0.0

    def ask(self) -> list[Proposed]:
        start = time.process_time()
        proposals = self._algorithm.ask()
        self.seconds += time.process_time() - start
        return proposals

    def tell(self, results: Sequence[Result]) -> None:
        start = time.process_time()
        self._algorithm.tell(results)
        self.seconds += time.process_time() - start


class Instant:
    """An evaluator that answers from a hash of the key."""

    workers = 1

    def choose(self, seeds: int = 1) -> Choices:
        """Nothing is computed."""
        return Choices("float32", {}, "nothing")

    def use(self, choices: Choices) -> None:
        """As ``choose``."""

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Evaluation]]:
        for job in jobs:
            number = int.from_bytes(hashlib.sha256(job.key.encode()).digest()[:6], "big")
            objectives = {
                "accuracy": 0.1 + 0.8 * (number % 997) / 997,
                "macs": float(1 + number % 1_999_993),
            }
            used = (0.0, 0.0, 0, "here")  # wall and core seconds, memory, worker
            yield job, Evaluation("ok", None, objectives, (), job.seed, "none", *used, None)

    def close(self) -> None:
        """Nothing to let go of."""
