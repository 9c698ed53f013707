"""What handing out trainings costs the driver, and how busy its workers are.

The dispatcher is the real one; its workers are simulated, and take the core-seconds of trainings
that a table recorded. In the last row one training in a hundred is lost with its node, half-way;
a worker takes ten seconds to start.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.figures import Figure
from nas.evaluation.trial import Trial, run_trials
from nas.searching.tabular.table import load_table
from tests.evaluation.simulated import SimulatedPool, make_dispatcher

TRAININGS = 10_000


def dispatch(options: argparse.Namespace) -> list[Figure]:
    """Microseconds a training, seconds in all and the busy share, by number of workers."""
    table = load_table(options.table)
    recorded = [one for own in table.trainings.values() for one in own]
    genome = next(iter(table.mechanisms.values()))
    rng = np.random.default_rng(0)
    drawn = [recorded[i] for i in rng.integers(len(recorded), size=TRAININGS)]
    trials = [Trial(str(n), genome, n, n, work=found.core_seconds) for n, found in enumerate(drawn)]
    figures = []
    for workers, losses in ((2, ""), (64, ""), (1000, ""), (1000, ", 1 % lost")):
        pool = SimulatedPool(
            lambda trial: drawn[trial.repeat],
            (lambda begun: begun % 100 == 50) if losses else (lambda _: False),
        )
        begun = time.process_time()
        dispatcher = make_dispatcher(pool, workers)
        assert sum(1 for _ in run_trials(dispatcher, trials)) == TRAININGS
        taken = time.process_time() - begun
        share = pool.busy / (workers * (pool.now - pool.start_seconds))
        name = f"{workers:,} workers, {TRAININGS:,} trainings{losses}"
        for what, value, unit in (
            ("a training", 1e6 * taken / TRAININGS, "µs"),
            ("in all", taken, "s"),
            ("busy once started", share, ""),
        ):
            figures.append(Figure(f"{name}: {what}", value, unit, value, value))
    return figures
