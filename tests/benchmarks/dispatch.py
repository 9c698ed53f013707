"""What Ray adds to a training: two workers, and a training that does nothing.

Elapsed time, since waiting for messages is what a worker that has no job does. Starting Ray and its
workers is shown apart: it happens once in a run.
"""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from nas.evaluation.ray_backend import RayEvaluator
from nas.evaluation.record import Evaluation, Job
from nas.mechanisms import mechanism
from nas.tasks import ImageData, Task, load_images, load_task
from tests.benchmarks.figures import Figure, fastest

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKERS: Final = 2
JOBS: Final = 100
ROUNDS: Final = 5


def dispatch(options: argparse.Namespace) -> list[Figure]:
    """Milliseconds between two jobs of a worker, and the seconds until both are there."""
    task = load_task("published-proxy", data="digits")
    data = load_images(task.data, task)
    start = time.perf_counter()
    with closing(RayEvaluator(task, data, workers=WORKERS, train=nothing)) as evaluator:
        rounds = list(_rounds(evaluator, start))
    ready, *taken = rounds
    between = fastest("between jobs", [1e3 * t * WORKERS / JOBS for t in taken], "ms")
    started = fastest("start", [ready], "s")
    print(f"\n{WORKERS} Ray workers, {JOBS} jobs that do nothing, best of {ROUNDS} rounds")
    print(f"  {between} between two jobs of a worker; {started} until the first jobs are done")
    return [between, started]


def _rounds(evaluator: RayEvaluator, start: float) -> Iterator[float]:
    """Seconds of each round; the first one, counted from ``start``, waits for workers."""
    genome = mechanism("mha").genome
    jobs = [Job(f"job{n}", genome, n) for n in range(JOBS)]
    for _ in range(ROUNDS + 1):
        assert all(evaluation.is_ok for _, evaluation in evaluator.run(jobs))
        yield time.perf_counter() - start
        start = time.perf_counter()


def nothing(job: Job, task: Task, data: ImageData, **limits: Any) -> Evaluation:
    """A training that answers at once."""
    return Evaluation("ok", None, {"accuracy": 0.5}, (), job.seed, "none", 0.0, 0.0, 0, "", None)
