"""Search, resume, evaluate and confirm: the functions that train."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from nas.common.errors import ConfigError, ViolationError
from nas.compiler import make_plan
from nas.costs import costs_of
from nas.evaluation.backends import make_evaluator
from nas.evaluation.execution import Execution
from nas.evaluation.journal import JournaledEvaluator
from nas.evaluation.study import study
from nas.genome.canonical import canonicalise
from nas.report.confirmation import confirmation_answer
from nas.report.trials import Training
from nas.searching.confirm import confirm_run, plan_confirmation
from nas.searching.driver import resume_search, run_search
from nas.searching.setup import Settings, check_count, setting_of
from nas.space import load_space
from nas.space.validation import load_policy, validate
from nas.store import RUNS, find_run, open_writer
from nas.store.sources import resolve
from nas.tasks import load_task
from nas.tasks.suite import Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Unpack

    from nas.genome import Genome
    from nas.searching.listener import Ended, Listener
    from nas.space import SearchSpace
    from nas.space.validation import Policy
    from nas.store.sources import Source
    from nas.tasks import Data, Task

TIME_LIMIT: Final = 1800.0


class Executing(TypedDict, total=False):
    """Who trains, and on what: the fields of ``Execution``; the time limit is half an hour."""

    backend: str
    workers: int | str | None
    gpus_per_worker: float | None
    ray_address: str | None
    time_limit: float | None
    start_seconds: float


def search(
    space: str,
    *,
    generations: int = 50,
    population: int = 24,
    task: str | None = None,
    data: str | None = None,
    algorithm: str = "surrogate",
    lag: int | None = None,
    seed: int = 0,
    repeats: int = 1,
    run: str | None = None,
    runs: str | Path = RUNS,
    listener: Listener | None = None,
    command: str = "nas.search",
    **execution: Unpack[Executing],
) -> Ended:
    """Search a space for mechanisms; returns how the run ended and where its folder is.

    Args:
        space: a search space, by name or path.
        task: a task, by name or path; the space's own by default.
        data: what to train on, as the task's family reads it; the task's own by default.
        algorithm: ``nsga2``, ``surrogate``, ``random``, ``regularized-evolution``,
            ``local-search``, or a plug-in's.
        lag: proposal t is computed from the results up to t - lag, so that no worker waits for a
            generation's last training; by default from those of whole generations.
        repeats: trainings of each mechanism, each with its own seed.
        run: the run's name; by default date, space and seed.
        runs: the folder that the run's folder goes into.
        listener: hears what happens; see ``nas.searching.listener``.
        command: what a person typed, for the record.
        execution: who trains, and on what: fields of ``nas.evaluation.execution.Execution``, such
            as ``backend="local"``, ``workers`` or ``time_limit``, which is half an hour by default.

    Raises:
        NasError: something given cannot be used; the message says what and why.
    """
    chosen = load_space(space)
    return run_search(
        chosen,
        task_of(chosen, task, data),
        Settings(algorithm, population, generations, seed, repeats, lag),
        make_evaluator=partial(make_evaluator, execution_of(execution)),
        root=Path(runs),
        name=run,
        command=command,
        listener=listener,
    )


def resume(
    run: str = "latest",
    *,
    generations: int | None = None,
    data: str | None = None,
    retry_failed: bool = False,
    runs: str | Path = RUNS,
    listener: Listener | None = None,
    command: str = "nas.resume",
    **execution: Unpack[Executing],
) -> Ended:
    """Go on with a run, or add generations to it; arguments as for ``search``.

    Args:
        data: where the run's data are now, if they have moved; other data are refused.
        retry_failed: try all failed trainings again, not those of lost workers alone.
    """
    return resume_search(
        find_run(run, Path(runs)),
        make_evaluator=partial(make_evaluator, execution_of(execution)),
        generations=generations,
        data=data,
        retry_failed=retry_failed,
        listener=listener,
        command=command,
    )


def evaluate(
    sources: Sequence[str | Path | Genome],
    *,
    task: str = "vit-cifar10",
    data: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    seeds: int = 1,
    seed: int = 0,
    policy: str = "score_normalize_aggregate",
    record: str | Path | None = None,
    test: bool = False,
    runs: str | Path = RUNS,
    **execution: Unpack[Executing],
) -> Iterator[Training]:
    """Train mechanisms without a search; trainings come as they finish.

    Args:
        sources: SOURCE strings or genomes.
        overrides: fields of the task to set.
        seeds: trainings of each.
        seed: what the training seeds derive from.
        policy: what genomes must obey; members of a run have passed that run's own.
        record: a file that every finished training is written to; those that it holds already
            are not repeated.
        test: judge on the data's test set in place of what is held out of training.

    Raises:
        ViolationError: a genome is not legal.
        NasError: something given cannot be used; the message says what and why.
    """
    check_count("seeds", seeds)
    rules, given = load_policy(policy), execution_of(execution)
    resolved = {one.text: one for one in (resolve(source, Path(runs)) for source in sources)}
    for one in resolved.values():
        check_legal(one, rules)
    chosen = load_task(task, data=data, overrides=overrides)
    check_one_model(chosen)
    loaded = chosen.load_test() if test else chosen.load()
    return trainings_of([*resolved.values()], chosen, loaded, given, seeds, seed, record)


def confirm(
    run: str = "latest",
    ids: Sequence[str] = (),
    *,
    members: int = 5,
    seeds: int = 5,
    long: str | None = None,
    test: bool = False,
    data: str | None = None,
    runs: str | Path = RUNS,
    heard: Callable[[Training, int, int], None] | None = None,
    **execution: Unpack[Executing],
) -> dict[str, Any]:
    """Train a run's likely members again with fresh seeds; the answer of ``nas confirm --json``.

    What the run has recorded of it is not trained again, so that the same call goes on where one
    was stopped.

    Args:
        ids: members by id, in place of those that are chosen.
        members: how many are chosen: best, knee and cheapest, then those of the front that add
            most to their hypervolume. Standard attention and ``uniform`` are always there.
        seeds: trainings of each, the same seeds for all.
        long: another task, by name or path, to train them under as well.
        test: train them once more, under the longest of the tasks, judged on its data's test set.
        data: where the run's data are now, if they have moved.
        heard: called with each training that ends, how many have, and how many there are.

    Raises:
        NasError: something given cannot be used; the message says what and why.
    """
    given = execution_of(execution)
    with open_writer(find_run(run, Path(runs)), None) as writer:
        plan = plan_confirmation(
            writer.run,
            ids=ids,
            members=members,
            seeds=seeds,
            long=long,
            is_tested=test,
            data=data,
        )
        total = sum(map(len, plan.todo))
        trained = confirm_run(writer, plan, partial(make_evaluator, given))
        with closing(trained):  # workers end at once, whatever ``heard`` raises
            for done, (subject, found) in enumerate(trained, 1):
                if heard is not None:
                    name = f"{found.part}: {subject.name or subject.digest[:8]}"
                    what = (name, subject.digest, found.repeat, found.evaluation)
                    heard(Training(*what, costs=subject.costs, metric=plan.metric), done, total)
        return confirmation_answer(writer.run, plan)


def trainings_of(
    sources: Sequence[Source],
    task: Task,
    data: Data,
    execution: Execution,
    seeds: int,
    seed: int,
    record: str | Path | None,
) -> Iterator[Training]:
    """The trainings of a study; workers are there while somebody iterates."""
    metric, setting, model = task.metrics(data)[0], setting_of(task, {}), task.main
    genomes = {
        s.text: canonicalise(s.genome, model.sizes, is_causal=model.is_causal) for s in sources
    }
    costs = {text: costs_of(genome, setting) for text, genome in genomes.items()}
    evaluator = make_evaluator(execution, task, data)
    try:
        if record is not None:
            evaluator = JournaledEvaluator(evaluator, Path(record), task, data)
        named = [(source.text, source.genome) for source in sources]
        for found in study(named, task, evaluator, repeats=seeds, seed=seed):
            yield Training(**vars(found), costs=costs[found.name], metric=metric)
    finally:
        evaluator.close()


def check_one_model(task: Task) -> None:
    """Refuse a suite where trainings are to be those of one model.

    Raises:
        ConfigError: names its members.
    """
    if isinstance(task, Suite):
        names = ",".join(member.task.name for member in task.members.values())
        raise ConfigError(
            f"task {task.name!r} is made of several; expected one that trains a single model. "
            f"`nas benchmark --tasks {names}` compares mechanisms under each of them."
        )


def check_legal(source: Source, policy: Policy) -> None:
    """Refuse to train what no policy has passed; what types forbid, no policy allows."""
    make_plan(source.genome)
    violations = () if source.run is not None else validate(source.genome, policy)
    if violations:
        raise ViolationError(
            f"{source.text} is not legal under {policy.name}: {violations[0].message}", violations
        )


def task_of(space: SearchSpace, task: str | None, data: str | None) -> Task:
    """The task of that name, or the space's own."""
    if task is not None:
        return load_task(task, data=data)
    own = space.task
    return load_task(own.name, data=data or own.data, overrides=own.overrides)


def execution_of(options: Executing) -> Execution:
    """The options as a value.

    Raises:
        ConfigError: a number is not above 0.
    """
    given: Executing = {"time_limit": TIME_LIMIT, **options}
    chosen = Execution(**given)
    for name in ("time_limit", "start_seconds"):
        value = getattr(chosen, name)
        if value is not None and not value > 0:  # NaN is not above 0 either
            option = name.replace("_", "-")
            raise ConfigError(f"{option}: found {value}; expected a number above 0.")
    return chosen
