"""Measure the busy share of simulated workers, with whole generations and with a lag.

Only the dependency rule is simulated: a proposal can be made when the results that it depends on
are known. Proposals and records take no time. A training takes as long as a random recorded one.

``dispatch`` measures the driver's processor time per dispatched training. The dispatcher is the one
of `nas search`; its workers are simulated and take ten seconds to start. In the last row one
training in a hundred is lost half-way with its node.
"""

from __future__ import annotations

import argparse
import time
from collections import deque

import numpy as np

from benchmarks.figures import Figure, single
from benchmarks.peers.problem import bench
from nas.common.objectives import Objective
from nas.evaluation.trial import Evaluation, Trial, run_trials
from nas.searching.algorithm import ALGORITHMS, SearchContext
from nas.searching.archive import Archive
from nas.searching.proposing import Proposer
from nas.searching.tabular.evaluator import TableEvaluator
from nas.searching.tabular.table import Table, load_table
from nas.space.vary import Variation
from tests.evaluation.simulated import SimulatedPool, make_dispatcher

TRAININGS = 40  # per worker
DISPATCHED = 10_000  # trainings of the benchmark of dispatching
PER_WORKER = {"generations of 12 a worker": (12, None), "a lag of 4 a worker": (12, 4)}


class Replay(TableEvaluator):
    """Simulated workers whose trainings take as long as random recorded trainings."""

    def __init__(self, table: Table, workers: int) -> None:
        super().__init__(table, workers=workers)
        self._all = [training for rows in table.trainings.values() for training in rows]

    def _find(self, trial: Trial) -> Evaluation:
        return self._all[np.random.default_rng(trial.seed).integers(len(self._all))]


def busy(table: Table, workers: int, population: int, lag: int | None) -> float:
    """Return the share of the workers' time spent on training, until the last training ends."""
    objectives: tuple[Objective, ...] = bench().objectives
    operators = Variation(bench().space, bench().policy)
    archive, candidate_filter = Archive(objectives, most_trainings=1), bench().filter
    context = SearchContext(
        operators, (), population, objectives, 0, candidate_filter, archive, lag
    )
    proposer = Proposer(ALGORITHMS.get("random")(context), context)
    evaluator, total = Replay(table, workers), TRAININGS * workers
    genome = next(iter(table.mechanisms.values()))
    proposed, known, has_ended = 0, 0, [False] * total
    waiting: deque[Trial] = deque()
    while known < total:
        while proposed < total and proposer.may_propose(proposed, known):
            waiting.append(Trial(str(proposed), genome, seed=proposed, repeat=proposed))
            proposed += 1
        evaluator.submit(list(waiting))
        waiting.clear()
        for trial, _ in evaluator.wait():
            has_ended[trial.repeat] = True
        while known < total and has_ended[known]:
            known += 1
    return evaluator.busy / (workers * evaluator.now)


def utilisation(options: argparse.Namespace) -> list[Figure]:
    """Return busy shares of 2, 64 and 1,000 workers, with generations and with a lag."""
    table = load_table(options.table)
    figures = []
    for name, (generation, lag) in PER_WORKER.items():
        for workers in (2, 64, 1000):
            share = busy(table, workers, generation * workers, lag and lag * workers)
            figures.append(single(f"{workers:,} workers, {name}", share, "busy"))
    return figures


def dispatch(options: argparse.Namespace) -> list[Figure]:
    """Return microseconds per training, total seconds and busy share, by number of workers."""
    table = load_table(options.table)
    recorded = [training for trainings in table.trainings.values() for training in trainings]
    genome = next(iter(table.mechanisms.values()))
    rng = np.random.default_rng(0)
    drawn = [recorded[i] for i in rng.integers(len(recorded), size=DISPATCHED)]
    trials = [Trial(str(n), genome, n, n, work=t.core_seconds) for n, t in enumerate(drawn)]
    figures = []
    for workers, losses in ((2, ""), (64, ""), (1000, ""), (1000, ", 1 % lost")):
        pool = SimulatedPool(
            lambda trial: drawn[trial.repeat],
            (lambda started: started % 100 == 50) if losses else (lambda _: False),
        )
        start = time.process_time()
        dispatcher = make_dispatcher(pool, workers)
        assert sum(1 for _ in run_trials(dispatcher, trials)) == DISPATCHED
        seconds = time.process_time() - start
        share = pool.busy / (workers * (pool.now - pool.start_seconds))
        name = f"{workers:,} workers, {DISPATCHED:,} trainings{losses}"
        figures += [
            single(f"{name}: a training", 1e6 * seconds / DISPATCHED, "µs"),
            single(f"{name}: in all", seconds, "s"),
            single(f"{name}: busy once started", share, ""),
        ]
    return figures
