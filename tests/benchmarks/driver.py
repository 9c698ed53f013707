"""What a candidate costs the driver itself: the search without its trainings.

One process proposes (NSGA-II, variation, normal form, novelty, costs), validates, and writes
proposals, results and fronts to the run's database; workers only train. An evaluator that answers
at once takes their place, so that what remains is the driver's own processor time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nas.objectives import Objective
from nas.searching.listener import Listener
from nas.searching.loop import Loop
from nas.searching.setup import frozen_space, make_proposer
from nas.space import load_space
from nas.store import Document, RunSetup, Session, create_run
from tests.benchmarks.figures import Figure, fastest
from tests.recorded_run import SETTING, Invented

if TYPE_CHECKING:
    from nas.searching.algorithm import Told
    from nas.searching.proposing import Proposer
    from nas.store import Proposal

SPACES: Final = ("quickstart", "attention_v1", "attention_v2")
OBJECTIVES: Final = (
    Objective("accuracy", "max", "fraction", "", 1.0, 0.1, is_metric=True),
    Objective("macs", "min", "MAC", "", 0.0, 2e6, is_metric=False),
)
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
    """Milliseconds of processor time a candidate: all, and that of the proposing."""

    total: float
    proposing: float


def measure_search(name: str, seed: int) -> Spent:
    """A whole search in a folder that goes away."""
    space, policy = frozen_space(load_space(name))
    setup = RunSetup(
        seed=seed,
        space=space,
        policy=policy,
        task=Document("instant", "name: instant\n", "0" * 16),
        algorithm="nsga2",
        population=POPULATION,
        generations=GENERATIONS,
        repeats=1,
        objectives=OBJECTIVES,
    )
    with tempfile.TemporaryDirectory() as folder:
        session = Session("python -m tests.benchmarks driver", {}, "any")
        with create_run(Path(folder), setup, session) as writer:
            proposer = Timed(make_proposer(setup, SETTING))
            start = time.process_time()
            Loop(writer, proposer, Invented(), Listener()).run()
            taken = time.process_time() - start
            count = len(writer.run.evaluations())
    return Spent(1e3 * taken / count, 1e3 * proposer.seconds / count)


class Timed:
    """A proposer whose processor time is counted."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        self.seconds = 0.0
        self.follow, self.may_propose = proposer.follow, proposer.may_propose

    def propose(self, number: int, told: Sequence[Told]) -> list[Proposal]:
        start = time.process_time()
        proposals = self._proposer.propose(number, told)
        self.seconds += time.process_time() - start
        return proposals
