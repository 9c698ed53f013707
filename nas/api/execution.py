"""The arguments that functions of nas share, and what functions that train have in common.

Args:
    source, sources: a genome, or a string or path that names a genome (see ``nas.store.sources``);
        "RUN/ID" names a genome of a run. Where mechanisms are trained or measured it may also be
        FILE.py:CLASS, a torch module of yours; its file is executed.
    against: the reference with which mechanisms are compared, in the same forms; by default that
        of the task.
    task: name or path of a task; by default that of the run of ``source``, or vit-cifar10. Without
        a search, mechanisms are trained under the scored task of a task with gates.
    data: training data, in the form that the task's family accepts; by default the task's own. For
        the task of a run, the new place of its data if they were moved; other data are refused.
    overrides: fields of the task to change, by name.
    dim, heads: width of the model, in features of a token, and number of heads; by default those of
        the task of the run of ``source``, or 64 and 4.
    seeds: number of trainings of each mechanism; all mechanisms share the seeds.
    seed: number from which the seeds of trainings derive.
    rates: whether to choose a learning rate for each mechanism by two further trainings at each of
        the task's rates, and to compare mechanisms at their best rates, see ``nas.common.rates``.
        By default where a claim is possible: mechanisms are compared, with two seeds or more, on
        validation examples, and each task offers rates.
    policy: name or path of the rules that genomes must obey; genomes of a run obey the run's.
    record: database file that stores finished trainings, so that they are not repeated.
    run: name or path of a run, or "latest".
    runs: the folder of runs.
    listener: object that receives events, see ``nas.searching.listener``; by default a display in
        a terminal or a notebook, and none elsewhere.
    track: "wandb", "mlflow" or "tensorboard", which receives numbers of each generation.
    command: the command line, which the run records.
    on_training: function called with each finished training, the number of finished trainings, and
        the total, which is the largest possible one if learning rates are tried.
    execution: options of the workers, the fields of ``nas.evaluation.execution.Execution``. They do
        not change what a training computes.

Raises:
    NasError: an argument cannot be used; the message names it and what was expected.
    GenomeError, ViolationError: a genome does not exist at the sizes, or is not legal.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypedDict

from nas.common.errors import NasWarning, ViolationError
from nas.compiler import make_plan
from nas.genome import Genome
from nas.genome.canonical import digest
from nas.genome.mechanisms import mechanism
from nas.space import SearchSpace
from nas.space.rules import Policy, load_policy, validate
from nas.store.run import NAMED_MEMBERS
from nas.store.sources import Source, resolve
from nas.tasks import ModelTask, Task, load_task, parse_task

DEFAULT_TASK: Final = "vit-cifar10"
DEFAULT_POLICY: Final = "score_normalize_aggregate"


class Executing(TypedDict, total=False):
    """The fields of ``nas.evaluation.execution.Execution`` as keyword arguments."""

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
    return load_task(
        default.name, data=default.data if data is None else data, overrides=default.model_extra
    )


def task_for(
    sources: Iterable[Source],
    task: str | None,
    data: str | None,
    overrides: Mapping[str, Any] | None,
    default: str = DEFAULT_TASK,
) -> ModelTask:
    """Return a task, of a gated task the scored one.

    Without ``task`` it is that of the run that the first source of a run names, or ``default``.
    """
    of_run = next((source for source in sources if source.run), None)
    found = of_run.task(data) if of_run and task is None else None
    if found is None:
        return load_task(task or default, data=data, overrides=overrides).main
    return parse_task({**found.main.to_dict(), **(overrides or {})}, found.main.name).main


def resolve_legal(
    sources: Iterable[str | Path | Genome], policy: str, runs: str | Path
) -> list[Source]:
    """Return the named mechanisms; raise ViolationError if a genome breaks a rule of the policy."""
    rules = load_policy(policy)
    resolved = [resolve(source, Path(runs)) for source in sources]
    for source in resolved:
        warn_of_reference(source)
        if isinstance(source.mechanism, Genome):
            check_legal(source, rules)
    return resolved


def warn_of_reference(source: Source) -> None:
    """Warn if a title such as "best" names the task's reference, and so nothing that was found."""
    title = source.text.rpartition("/")[2]
    task = source.task() if title in NAMED_MEMBERS else None
    if task and source.digest == digest(mechanism(task.main.reference).genome):
        name = task.main.reference
        text = f"{source.text} is {name}: the {title} member of this run is the reference itself."
        warnings.warn(text, NasWarning, stacklevel=2)


def check_legal(source: Source, policy: Policy) -> None:
    """Raise ViolationError if a genome does not type-check or breaks a rule of the policy.

    A genome of a run obeys the rules of the run.
    """
    make_plan(source.genome)
    violations = () if source.run is not None else validate(source.genome, policy)
    if violations:
        raise ViolationError(
            f"{source.text} is not legal under {policy.name}: {violations[0].message}", violations
        )
