"""Arguments that several functions which train share: options of workers, task, and policy."""

from __future__ import annotations

from typing import TypedDict

from nas.common.errors import ConfigError, ViolationError
from nas.compiler import make_plan
from nas.space import SearchSpace
from nas.space.rules import Policy, validate
from nas.store.sources import Source
from nas.tasks import Task, load_task


class Executing(TypedDict, total=False):
    """Options of the workers that train; they do not change what a training computes.

    The keys are the fields of ``nas.evaluation.execution.Execution``.

    Attributes:
        backend: "ray", or "local" to train in this process.
        workers: number of trainings at once; one per processor core by default. "MIN:MAX" lets a
            cluster grow from MIN to MAX workers.
        gpus_per_worker: GPUs of a worker; several workers share a GPU if it is a fraction.
        ray_address: the Ray cluster to join, "host:port" or "auto"; by default a cluster is started
            on this machine.
        time_limit: seconds that one training may take, 1800 by default; None for no limit.
        start_seconds: seconds to wait for a busy cluster, 300 by default.
    """

    backend: str
    workers: int | str | None
    gpus_per_worker: float | None
    ray_address: str | None
    time_limit: float | None
    start_seconds: float


def task_of(space: SearchSpace, task: str | None, data: str | None) -> Task:
    """Return the task of this name or path, or the space's default task if ``task`` is None."""
    if task is not None:
        return load_task(task, data=data)
    default = space.task
    return load_task(default.name, data=data or default.data, overrides=default.overrides)


def check_one_model(task: Task) -> None:
    """Raise ConfigError if a task is gated, that is, trains a model under each of several tasks."""
    if task is not task.main:
        raise ConfigError(
            f"task {task.name!r} has gates; expected one without, such as its scored task "
            f"{task.main.name!r}."
        )


def check_legal(source: Source, policy: Policy) -> None:
    """Raise ViolationError if a genome does not type-check or breaks a rule of the policy.

    A genome of a run is only type-checked, since it obeys the rules of the run.
    """
    make_plan(source.genome)
    violations = () if source.run is not None else validate(source.genome, policy)
    if violations:
        raise ViolationError(
            f"{source.text} is not legal under {policy.name}: {violations[0].message}", violations
        )
