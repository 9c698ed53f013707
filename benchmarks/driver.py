"""The processor time and memory of a search's own process, with simulated trainings.

Proposals, records, estimates and the dispatch of trainings are those of `nas search`; only the
workers are simulated. A simulated clock advances by the processor time that the search takes, and
by the seconds of the trainings, so that the busy share of the workers shows whether proposals come
in time.
"""

from __future__ import annotations

import argparse
import heapq
import resource
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.figures import Figure, single
from benchmarks.peers.synthetic import NOISE, _normal, _total
from nas.common.search_config import SearchConfig
from nas.evaluation.dispatch import Dispatcher
from nas.evaluation.local import LocalEvaluator
from nas.evaluation.trial import Budget, Evaluation, Report, Trial
from nas.genome.primitives import Role, get
from nas.searching.driver import run_search
from nas.searching.listener import Evaluated, Listener
from nas.space import load_space
from nas.tasks import load_task
from tests.evaluation.simulated import SimulatedPool

WORKERS: Final = 16
SECONDS: Final = 0.16  # of a training: 16 workers end 100 of them in a second
STEPS: Final = 20  # lines of the table


class Pool(SimulatedPool):
    """Simulated workers on a clock that also counts this process's processor time."""

    def __init__(self) -> None:
        super().__init__(evaluation, start_seconds=0.0)
        self._cpu = time.process_time()

    def wait(self, timeout: float | None) -> Iterable[Any]:
        """Let time pass until the next answer."""
        cpu = time.process_time()
        self.now, self._cpu = self.now + cpu - self._cpu, cpu
        moment, *ref = heapq.heappop(self._coming)
        self.now = max(self.now, moment)
        self.busy += SECONDS if isinstance(ref[1], Trial) else 0.0
        return [tuple(ref)]

    def submit(self, worker: Any, trial: Trial | None, *, is_alone: bool = False) -> Any:
        """A training takes the same time for every mechanism."""
        return self._expect(SECONDS, trial)


class Simulated(Dispatcher):
    """Simulated workers; only the calibration of times is measured."""

    def __init__(self, task: Any, data: Any) -> None:
        self._local = LocalEvaluator(task, data)
        self.pool = Pool()
        super().__init__(
            self.pool,
            WORKERS,
            Budget(1, 1, "float32"),
            patience=1800.0,
            start_seconds=300.0,
            clock=lambda: self.pool.now,
        )

    def calibrate(self) -> Any:
        """Measure unit times in this process."""
        return self._local.calibrate()


def evaluation(trial: Trial) -> Evaluation:
    """A training whose accuracy is a sum of random effects of the mechanism's parts, plus noise.

    A search refuses a task under which a mean of all tokens is as good as standard attention.
    """
    has_scores = any(get(node.op).role is Role.SCORE for node in trial.mechanism.nodes)
    quality = 0.0 if has_scores else -0.15
    quality += 0.05 * _total(trial.mechanism, 0) + NOISE * _normal("noise", trial.key, trial.repeat)
    metrics = {"accuracy": min(max(0.2 + quality, 0.0), 1.0), "log_loss": 1.7}
    reports = tuple(Report(epoch, 2.0, metrics, 0.05 * epoch) for epoch in (1, 2, 3))
    return Evaluation(
        status="ok",
        reason=None,
        metrics=metrics,
        reports=reports,
        seed=trial.seed,
        budget=Budget(3, 2880, "float32"),
        wall_seconds=SECONDS,
        core_seconds=SECONDS,
        peak_memory_bytes=2**29,
        worker="simulated:1",
        hardware="simulated",
        execution="simulated",
    )


class Watch(Listener):
    """Prints processor time a training, memory and the busy share, ``STEPS`` times."""

    def __init__(self, pools: list[Simulated], every: int) -> None:
        self._pools, self._every, self._count = pools, every, 0
        # Trainings, processor seconds, simulated seconds and busy worker-seconds so far.
        self._states = [(0, time.process_time(), 0.0, 0.0)]

    def on_evaluation(self, event: Evaluated) -> None:
        """Print a line after each ``every`` trainings."""
        self._count += 1
        if self._count % self._every == 0:
            pool = self._pools[-1].pool
            self._states.append((self._count, time.process_time(), pool.now, pool.busy))
            cpu, share = self.since(1)
            line = f"{self._count:8,} trainings {cpu:8.1f} ms each {_resident_mib():8.0f} MiB"
            print(f"{line} {share:8.1%} busy", flush=True)

    def since(self, lines: int) -> tuple[float, float]:
        """Return milliseconds a training and the busy share over the last lines."""
        before, last = self._states[-1 - lines], self._states[-1]
        count, cpu, now, busy = (b - a for a, b in zip(before, last, strict=True))
        return 1e3 * cpu / count, busy / (WORKERS * now)


def driver(options: argparse.Namespace) -> list[Figure]:
    """Simulate a search of ``--trainings``; return time, memory and busy share at its end."""
    pools: list[Simulated] = []

    def make_evaluator(task: Any, data: Any) -> Simulated:
        pools.append(Simulated(task, data))
        return pools[-1]

    config = SearchConfig(
        "surrogate",
        options.population,
        -(-options.trainings // options.population),
        options.seed,
        lag=options.lag,
    )
    watch = Watch(pools, max(1, options.trainings // STEPS))
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
    name, (cpu, share) = f"{options.trainings:,} trainings", watch.since(STEPS // 4)
    return [
        single(f"{name}: the last quarter", cpu, "ms each"),
        single(f"{name}: memory", _resident_mib(), "MiB"),
        single(f"{name}: {WORKERS} workers, the last quarter", share, "busy"),
    ]


def _resident_mib() -> float:
    if sys.platform == "linux":
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
