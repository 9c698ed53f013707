"""Measure the driver's processor time per dispatched training, and the busy share of its workers.

The dispatcher is the one of `nas search`. Workers are simulated: their trainings take as long as
recorded trainings of a table. In the last row one training in a hundred is lost half-way with its
node. A worker takes ten seconds to start.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.figures import Figure, single
from nas.evaluation.trial import Trial, run_trials
from nas.searching.tabular.table import load_table
from tests.evaluation.simulated import SimulatedPool, make_dispatcher

TRAININGS = 10_000


def dispatch(options: argparse.Namespace) -> list[Figure]:
    """Return microseconds per training, total seconds and busy share, by number of workers."""
    table = load_table(options.table)
    recorded = [training for trainings in table.trainings.values() for training in trainings]
    genome = next(iter(table.mechanisms.values()))
    rng = np.random.default_rng(0)
    drawn = [recorded[i] for i in rng.integers(len(recorded), size=TRAININGS)]
    trials = [Trial(str(n), genome, n, n, work=t.core_seconds) for n, t in enumerate(drawn)]
    figures = []
    for workers, losses in ((2, ""), (64, ""), (1000, ""), (1000, ", 1 % lost")):
        pool = SimulatedPool(
            lambda trial: drawn[trial.repeat],
            (lambda started: started % 100 == 50) if losses else (lambda _: False),
        )
        start = time.process_time()
        dispatcher = make_dispatcher(pool, workers)
        assert sum(1 for _ in run_trials(dispatcher, trials)) == TRAININGS
        seconds = time.process_time() - start
        share = pool.busy / (workers * (pool.now - pool.start_seconds))
        name = f"{workers:,} workers, {TRAININGS:,} trainings{losses}"
        figures += [
            single(f"{name}: a training", 1e6 * seconds / TRAININGS, "µs"),
            single(f"{name}: in all", seconds, "s"),
            single(f"{name}: busy once started", share, ""),
        ]
    return figures
