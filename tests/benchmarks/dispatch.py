"""What Ray adds to a training: two workers, and a training that does nothing.

Elapsed time, since waiting for messages is what a worker that has no trial does. Starting Ray and
its workers is shown apart: it happens once in a run.
"""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from nas.evaluation.ray_backend import RayEvaluator
from nas.evaluation.share import Execution
from nas.evaluation.trial import Budget, Evaluation, Trial, run_trials
from nas.mechanisms import mechanism
from nas.tasks import Data, Task, load_task
from tests.benchmarks.figures import Figure, fastest

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKERS: Final = 2
TRIALS: Final = 100
ROUNDS: Final = 5


def dispatch(options: argparse.Namespace) -> list[Figure]:
    """Milliseconds between two trials of a worker, and the seconds until both are there."""
    task = load_task("published-proxy", data="digits")
    data = task.load()
    start = time.perf_counter()
    with closing(RayEvaluator(task, data, Execution(workers=WORKERS), train=nothing)) as evaluator:
        rounds = list(_rounds(evaluator, start))
    ready, *taken = rounds
    between = fastest("between trials", [1e3 * t * WORKERS / TRIALS for t in taken], "ms")
    started = fastest("start", [ready], "s")
    print(f"\n{WORKERS} Ray workers, {TRIALS} trials that do nothing, best of {ROUNDS} rounds")
    print(f"  {between} between two trials of a worker; {started} until the first ones are done")
    return [between, started]


def _rounds(evaluator: RayEvaluator, start: float) -> Iterator[float]:
    """Seconds of each round; the first one, counted from ``start``, waits for workers."""
    genome = mechanism("mha").genome
    trials = [Trial(f"trial{n}", genome, n) for n in range(TRIALS)]
    for _ in range(ROUNDS + 1):
        assert all(evaluation.is_ok for _, evaluation in run_trials(evaluator, trials))
        yield time.perf_counter() - start
        start = time.perf_counter()


def nothing(trial: Trial, task: Task, data: Data, **limits: Any) -> Evaluation:
    """A training that answers at once."""
    budget = Budget(0, 0, "float32")
    return Evaluation("ok", None, {"accuracy": 0.5}, (), trial.seed, budget, 0.0, 0.0, 0, "")
