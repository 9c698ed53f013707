"""Common arguments of functions that train: workers, task, and legality."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

from nas.common.errors import ConfigError, ViolationError
from nas.compiler import make_plan
from nas.evaluation.execution import Execution
from nas.space import SearchSpace
from nas.space.validation import Policy, validate
from nas.tasks import Task, load_task
from nas.tasks.suite import Suite

if TYPE_CHECKING:
    from nas.store.sources import Source

TIME_LIMIT: Final = 1800.0


class Executing(TypedDict, total=False):
    """Options of the workers: the fields of ``Execution``; they do not change results.

    Attributes:
        backend: "ray", or "local" to train in this process.
        workers: trainings at once; one per processor core by default. "MIN:MAX" lets a cluster
            grow.
        gpus_per_worker: GPUs of a worker; a fraction shares one.
        ray_address: a Ray cluster to join, "host:port" or "auto"; by default one is started here.
        time_limit: seconds that one training may take, 1800 by default; None for no limit.
        start_seconds: seconds to wait for a busy cluster, 300 by default.
    """

    backend: str
    workers: int | str | None
    gpus_per_worker: float | None
    ray_address: str | None
    time_limit: float | None
    start_seconds: float


def execution_of(options: Executing) -> Execution:
    """The options as an ``Execution``, with the default time limit.

    Raises:
        ConfigError: a number is not above 0.
    """
    options = {"time_limit": TIME_LIMIT, **options}
    execution = Execution(**options)
    for name in ("time_limit", "start_seconds"):
        value = getattr(execution, name)
        if value is not None and not value > 0:  # NaN is not above 0 either
            option = name.replace("_", "-")
            raise ConfigError(f"{option}: found {value}; expected a number above 0.")
    return execution


def task_of(space: SearchSpace, task: str | None, data: str | None) -> Task:
    """The task of that name, or the space's default."""
    if task is not None:
        return load_task(task, data=data)
    default = space.task
    return load_task(default.name, data=data or default.data, overrides=default.overrides)


def check_one_model(task: Task) -> None:
    """Check that a task trains a single model.

    Raises:
        ConfigError: the task is a suite; the message names its members.
    """
    if isinstance(task, Suite):
        names = ",".join(member.task.name for member in task.members.values())
        raise ConfigError(
            f"task {task.name!r} is made of several; expected one that trains a single model. "
            f"`nas benchmark --tasks {names}` compares mechanisms under each of them."
        )


def check_legal(source: Source, policy: Policy) -> None:
    """Check a genome against a policy; members of a run already passed the run's policy.

    Raises:
        ViolationError: the genome breaks a rule or does not type-check.
    """
    make_plan(source.genome)
    violations = () if source.run is not None else validate(source.genome, policy)
    if violations:
        raise ViolationError(
            f"{source.text} is not legal under {policy.name}: {violations[0].message}", violations
        )
