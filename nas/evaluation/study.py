"""Train given mechanisms under a task, each with several seeds: no search, no run."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, stdev
from typing import TYPE_CHECKING

from nas.canonical import canonicalise, digest, resolved_digest
from nas.evaluation.record import Job, training_seed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nas.evaluation.record import Evaluation, Evaluator
    from nas.genome import Genome
    from nas.tasks import Task


@dataclass(frozen=True)
class Trial:
    """One training of one mechanism: which, the how-many-eth, and what it gave."""

    name: str
    digest: str
    repeat: int
    evaluation: Evaluation


def study(
    mechanisms: Sequence[tuple[str, Genome]],
    task: Task,
    evaluator: Evaluator,
    *,
    repeats: int,
    seed: int = 0,
) -> Iterator[Trial]:
    """Train every mechanism ``repeats`` times; trials come as they finish.

    Training seeds derive from ``seed`` and the repeat alone: mechanisms meet the same start of the
    backbone and the same order of images, so that what differs is the mechanism. (A search, where
    the best of many is taken, gives every candidate a start of its own.)

    Raises:
        GenomeError: a mechanism does not exist at the task's sizes.
    """
    dim, heads, depth, _ = task.sizes
    jobs: list[Job] = []
    meaning: dict[tuple[str, int], list[tuple[str, str, int]]] = {}
    for repeat in range(repeats):
        for name, genome in mechanisms:
            key = resolved_digest(genome, dim=dim, heads=heads, depth=depth)
            job = Job(key, canonicalise(genome), training_seed(seed, "study", repeat))
            if (key, job.seed) not in meaning:
                jobs.append(job)
            # Two names of one mechanism at this size are trained once and reported twice.
            meaning.setdefault((key, job.seed), []).append((name, digest(genome), repeat))
    for job, evaluation in evaluator.run(jobs):
        for name, own, repeat in meaning[job.key, job.seed]:
            yield Trial(name, own, repeat, evaluation)


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and its standard error; None where a single value has none."""
    if len(values) < 2:
        return mean(values), None
    return mean(values), stdev(values) / len(values) ** 0.5
