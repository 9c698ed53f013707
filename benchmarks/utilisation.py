"""How busy workers are that replay a table's durations, by generations and with a lag.

Only the rule decides here: proposal t may be made when the results that it is computed from are
known. Proposing and recording take no time; a training takes the core-seconds of a recorded one
that is drawn for it.
"""

from __future__ import annotations

import argparse
from collections import deque

import numpy as np

from benchmarks.figures import Figure
from benchmarks.peers.problem import bench
from nas.common.objectives import Objective
from nas.evaluation.trial import Evaluation, Trial
from nas.searching.algorithm import ALGORITHMS, SearchContext
from nas.searching.archive import Archive
from nas.searching.proposing import Proposer
from nas.searching.tabular.evaluator import TableEvaluator
from nas.searching.tabular.table import Table, load_table
from nas.space.variation import Variation

EACH = 40  # trainings a worker
PER_WORKER = {"generations of 12 a worker": (12, None), "a lag of 4 a worker": (12, 4)}


class Replay(TableEvaluator):
    """Simulated workers, each training as long as some recorded one."""

    def __init__(self, table: Table, workers: int) -> None:
        super().__init__(table, workers=workers)
        self._all = [one for own in table.trainings.values() for one in own]

    def _find(self, trial: Trial) -> Evaluation:
        return self._all[np.random.default_rng(trial.seed).integers(len(self._all))]


def busy(table: Table, workers: int, population: int, lag: int | None) -> float:
    """The share of the workers' time that is training, from the first proposal to the last end."""
    objectives: tuple[Objective, ...] = bench().objectives
    operators = Variation(bench().space, bench().policy)
    archive, judge = Archive(objectives, most_trainings=1), bench().judge
    materials = SearchContext(operators, (), population, objectives, 0, judge, archive)
    proposer = Proposer(ALGORITHMS.get("random")(materials), materials, lag=lag)
    evaluator, total = Replay(table, workers), EACH * workers
    genome = next(iter(table.mechanisms.values()))
    asked, known, ended = 0, 0, [False] * total
    waiting: deque[Trial] = deque()
    while known < total:
        while asked < total and proposer.may_propose(asked, known):
            waiting.append(Trial(str(asked), genome, seed=asked, repeat=asked))
            asked += 1
        evaluator.submit(list(waiting))
        waiting.clear()
        for trial, _ in evaluator.wait():
            ended[trial.repeat] = True
        while known < total and ended[known]:
            known += 1
    return evaluator.busy / (workers * evaluator.now)


def utilisation(options: argparse.Namespace) -> list[Figure]:
    """2, 64 and 1,000 workers, by generations and with a lag."""
    table = load_table(options.table)
    found = []
    for name, (generation, lag) in PER_WORKER.items():
        for workers in (2, 64, 1000):
            share = busy(table, workers, generation * workers, lag and lag * workers)
            found.append(Figure(f"{workers:,} workers, {name}", share, "busy", share, share))
    return found
