"""The processor time and memory of a search's own process, with simulated trainings.

Proposals, records and estimates are those of `nas search`; only the workers are simulated. A
simulated clock advances by the processor time that the search takes, and by the seconds of the
trainings, so that the busy share of the workers shows whether proposals come in time.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import resource
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from benchmarks.rows import Row
from nas.common.objectives import SearchConfig
from nas.evaluation.trainer import LocalEvaluator
from nas.evaluation.trial import Budget, Evaluation, Incident, Report, Trial, log
from nas.genome import FLAGS, Genome, Ref
from nas.searching.driver import run_search
from nas.searching.listener import Evaluated, Listener
from nas.space import load_space
from nas.tasks import load_task

WORKERS: Final = 16
NOISE: Final = 0.006  # standard deviation of one training's accuracy
SECONDS: Final = 0.16  # of a training: 16 workers end 100 of them in a second
STEPS: Final = 20  # rows of the table


class Simulated:
    """An evaluator of simulated workers, on a clock that also counts this process's time."""

    workers = WORKERS

    def __init__(self, task: Any, data: Any) -> None:
        self._local = LocalEvaluator(task, data)
        self.on_incident: Callable[[Incident], None] = log
        self.now = self.busy = 0.0
        self._cpu = time.process_time()
        self._waiting: deque[Trial] = deque()
        self._running: list[tuple[float, int, Trial]] = []
        self._num_begun = 0

    def measure(self, function: Any) -> Any:
        """Measure times in this process."""
        return self._local.measure(function)

    def submit(self, trials: Sequence[Trial]) -> None:
        """Queue trials, and start as many as there are idle workers."""
        self._waiting.extend(trials)
        self._start()

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        """Return the trial that ends next; an empty list if none runs."""
        if not self._running:
            return []
        self._advance()
        moment, _, trial = heapq.heappop(self._running)
        self.now = max(self.now, moment)
        self.busy += SECONDS
        self._start()
        return [(trial, evaluation(trial))]

    def close(self) -> None:
        """Do nothing."""

    def _start(self) -> None:
        self._advance()
        while self._waiting and len(self._running) < WORKERS:
            self._num_begun += 1
            trial = self._waiting.popleft()
            heapq.heappush(self._running, (self.now + SECONDS, self._num_begun, trial))

    def _advance(self) -> None:
        cpu = time.process_time()
        self.now, self._cpu = self.now + cpu - self._cpu, cpu


def evaluation(trial: Trial) -> Evaluation:
    """A training whose accuracy is a sum of random effects of the mechanism's parts, plus noise.

    A search refuses a task under which a mean of all tokens is as good as standard attention.
    """
    quality = -0.15 if any(node.op == "uniform" for node in trial.mechanism.nodes) else 0.0
    quality += 0.05 * _total_effect(trial.mechanism)
    quality += NOISE * _normal("noise", trial.key, trial.repeat)
    metrics = {"accuracy": min(max(0.2 + quality, 0.0), 1.0), "log_loss": 1.7}
    reports = tuple(Report(epoch, 2.0, metrics, 0.05 * epoch) for epoch in (1, 2, 3))
    budget, size = Budget(3, 2880, "float32"), 2**29
    rest = (reports, trial.seed, budget, SECONDS, SECONDS, size, "simulated:1", "simulated")
    return Evaluation("ok", None, metrics, *rest)


class Watch(Listener):
    """Collects processor time a training, memory and the busy share, ``STEPS`` times."""

    def __init__(self, evaluators: list[Simulated], every: int) -> None:
        self._evaluators, self._every, self._count = evaluators, every, 0
        self._state = (0, time.process_time(), 0.0, 0.0)
        self.rows: list[Row] = []

    def on_evaluation(self, event: Evaluated) -> None:
        """Add a row after each ``every`` trainings."""
        self._count += 1
        if self._count % self._every:
            return
        found = self._evaluators[-1]
        state = (self._count, time.process_time(), found.now, found.busy)
        count, cpu, now, busy = (b - a for a, b in zip(self._state, state, strict=True))
        self._state = state
        self.rows.append(
            {
                "trainings": self._count,
                "ms each": 1e3 * cpu / count,
                "MiB": _resident_mib(),
                "workers busy, %": 100 * busy / (WORKERS * now),
            }
        )


def driver(options: argparse.Namespace) -> Iterator[Row]:
    """Simulate a search of ``--trainings``; yield time, memory and busy share in its course."""
    evaluators: list[Simulated] = []

    def make_evaluator(task: Any, data: Any) -> Simulated:
        evaluators.append(Simulated(task, data))
        return evaluators[-1]

    generations = -(-options.trainings // options.population)
    config = SearchConfig(
        "surrogate", options.population, generations, options.seed, lag=options.lag
    )
    watch = Watch(evaluators, max(1, options.trainings // STEPS))
    few = {"train_images": 64, "validation_images": 32}
    with TemporaryDirectory() as root:
        run_search(
            load_space("attention_v2"),
            load_task("vit-cifar10", data="digits", overrides=few),
            config,
            make_evaluator=make_evaluator,
            root=Path(root),
            listener=watch,
        )
    yield from watch.rows


def _resident_mib() -> float:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize() / 2**20


def _total_effect(genome: Genome) -> float:
    """Return the sum of the effects of a genome's parts."""

    def name(ref: Ref) -> str:
        return ref if isinstance(ref, str) else genome.nodes[ref].op

    total = 0.0
    for node in genome.nodes:
        total += 0.5 * _normal(node.op, node.params)
        for slot, ref in enumerate(node.inputs):
            total += 0.5 * _normal(node.op, slot, name(ref))
            inner = genome.nodes[ref].inputs if isinstance(ref, int) else ()
            total += 0.35 * sum(_normal(node.op, name(ref), name(r)) for r in inner)
    has = (flag for flag in FLAGS if getattr(genome.projections, flag))
    return total + sum(0.4 + 0.2 * _normal(flag) for flag in has)


@cache
def _normal(*parts: object) -> float:
    """Return a normal number that depends on ``parts`` alone."""
    raw = hashlib.sha256(repr(parts).encode()).digest()
    return float(np.random.default_rng(int.from_bytes(raw[:8], "big")).standard_normal())
