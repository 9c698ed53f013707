"""In which order and in which company trainings should begin: longest first, seeds together.

What takes long and begins last leaves other workers idle at the end (Graham 1969). Times need not
be known for it, only which of two is likely longer; on the processors that we know a training's
time follows its passes over pairs of tokens more than its multiply-adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.compiler import make_plan
from nas.errors import NasError
from nas.genome import layers_with_mechanism

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas.evaluation.record import Job
    from nas.tasks import Task


def longest_first(jobs: Sequence[Job], task: Task) -> list[Job]:
    """The jobs, those likely to take longest first; equals keep their order."""
    return sorted(jobs, key=lambda job: -expected_work(job, task))


def grouped(jobs: Sequence[Job], most: int) -> list[tuple[Job, ...]]:
    """Jobs of one genome side by side, at most so many; the groups in order of their first."""
    by_key: dict[str, list[Job]] = {}
    for job in jobs:
        by_key.setdefault(job.key, []).append(job)
    return [tuple(own[i : i + most]) for own in by_key.values() for i in range(0, len(own), most)]


def expected_work(job: Job, task: Task) -> int:
    """Numbers that one image's pass through the mechanism's layers touches, about.

    A genome that does not exist at the task's sizes is no work: it fails at once.
    """
    dim, heads, depth, tokens = task.sizes
    try:
        plan = make_plan(job.genome)
        work = 0
        for step in plan.steps:
            sizes = plan.call_sizes(step, dim, heads, tokens)
            rows = tokens if step.is_paired else sizes.width
            work += sizes.heads * tokens * rows * step.primitive.passes(sizes, step.params)
    except NasError:
        return 0
    return work * len(layers_with_mechanism(job.genome.placement, depth))
