"""``nas.evaluate`` and ``nas.benchmark``: train mechanisms without a search."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Unpack

from nas.api.execution import Executing, check_legal, check_one_model
from nas.common.errors import ConfigError
from nas.common.rates import BY_VALIDATION, CHOOSING_SEEDS
from nas.common.search_config import check_count
from nas.evaluation.backends import make_evaluator
from nas.evaluation.execution import Execution
from nas.evaluation.journal import JournaledEvaluator
from nas.evaluation.study import costs_under, resolve_under, study, why_not
from nas.evaluation.trial import Evaluator, Purpose, Training
from nas.genome import Genome
from nas.report.benchmark import BenchmarkResult, make_benchmark
from nas.report.trials import EvaluateResult, TrainingRow
from nas.searching.setup import cost_context
from nas.space.rules import load_policy
from nas.store import RUNS
from nas.store.appending import RunRecord
from nas.store.sources import AnyTrainable, ModuleSource, Source, resolve_trainable
from nas.tasks import Data, Task, load_task

LOGGER: Final = logging.getLogger("nas")
TASKS: Final = ("recall", "induction", "copying", "bytes", "text-classification", "vit-cifar10")


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
    on_training: Callable[[TrainingRow, int, int], None] | None = None,
    **execution: Unpack[Executing],
) -> EvaluateResult:
    """Train mechanisms under one task, without a search.

    Examples:
        >>> result = nas.evaluate(["mha", "uniform"], task="tiny.yaml", backend="local")
        >>> [training.evaluation.status for training in result.trainings]
        ['ok', 'ok']
        >>> sorted(result.to_pandas()["source"])
        ['mha', 'uniform']

    Args:
        sources: genomes, or strings or paths that name genomes or users' own torch modules (see
            ``nas.store.sources``). The file of a module, FILE.py:CLASS, is executed.
        task: name or path of a task.
        data: training data, in the form that the task's family accepts; the task's own data by
            default.
        overrides: fields of the task to change, by name.
        seeds: number of trainings of each mechanism; all mechanisms share the seeds.
        seed: number from which the seeds of trainings derive.
        policy: name or path of the rules that genomes must obey. Genomes of a run are not checked.
        record: file that stores finished trainings, so that they are not repeated.
        test: whether to evaluate on the test set instead of examples held out of training.
        runs: the folder of runs.
        on_training: function called with each finished training, the number of finished trainings,
            and the total.
        execution: options of the workers; see ``nas.api.execution.Executing``.

    Raises:
        ViolationError: a genome is not legal.
        ConfigError: a user's own module cannot be trained; the message names file and class.
        NasError: an argument cannot be used; the message names it and what was expected.
    """
    check_count("seeds", seeds)
    options = Execution(**execution)
    resolved = _resolve_all(sources, policy, Path(runs))
    loaded = load_task(task, data=data, overrides=overrides)
    check_one_model(loaded)
    for source in resolved.values():
        if isinstance(source, ModuleSource) and (reason := why_not(source.mechanism, loaded)):
            raise ConfigError(reason)
    examples = loaded.load_test() if test else loaded.load()
    run_record = _record_of(resolved.values(), LOGGER.warning)
    trainings: list[TrainingRow] = []
    arguments = ([*resolved.values()], loaded, examples, options, seeds, seed, record)
    with closing(_train(*arguments, "evaluate", run_record)) as finished:
        for training in finished:
            trainings.append(training)
            if on_training is not None:
                on_training(training, len(trainings), seeds * len(resolved))
    order = [*resolved]
    trainings.sort(key=lambda training: (order.index(training.name), training.repeat))
    return EvaluateResult(task, test, tuple(trainings))


def benchmark(
    sources: Sequence[str | Path | Genome],
    *,
    against: str | Path | Genome = "mha",
    tasks: Sequence[str] = TASKS,
    data: Mapping[str, str] | None = None,
    seeds: int = 5,
    seed: int = 0,
    rates: bool = False,
    policy: str = "score_normalize_aggregate",
    record: str | Path | None = None,
    test: bool = False,
    runs: str | Path = RUNS,
    on_training: Callable[[str, TrainingRow, int, int], None] | None = None,
    on_save_error: Callable[[str], None] = LOGGER.warning,
    **execution: Unpack[Executing],
) -> BenchmarkResult:
    """Train mechanisms under several tasks, and compare each mechanism with a reference.

    If a source is a genome of a run, the run stores the trainings and the comparison, and its
    report shows them. Stored trainings are not repeated.

    Examples:
        >>> result = nas.benchmark(["uniform"], tasks=["tiny.yaml"], seeds=2, backend="local")
        >>> [row.source for row in result.mechanisms], list(result.tasks)
        (['mha', 'uniform'], ['tiny'])

    Args:
        sources: genomes, or strings or paths that name genomes or users' own torch modules (see
            ``nas.store.sources``). The file of a module, FILE.py:CLASS, is executed.
        against: the reference mechanism. Differences are between trainings that share their seed.
        tasks: names or paths of tasks; by default six built-in tasks on tokens and images.
        data: training data by a task's name or path, which replace the task's own data. Tasks
            that are not in ``tasks`` are permitted.
        seeds: number of trainings of each mechanism under each task.
        seed: number from which the seeds of trainings derive.
        rates: whether to train each mechanism at each of the task's learning rates, and to compare
            mechanisms at their best rates, see ``nas.common.rates``. ``CHOOSING_SEEDS`` further
            trainings at each rate choose the rate.
        policy: name or path of the rules that genomes must obey. Genomes of a run are not checked.
        record: file that stores finished trainings, so that they are not repeated.
        test: whether to evaluate on test sets instead of examples held out of training.
        runs: the folder of runs.
        on_training: function called with the task's name, each finished training, the number of
            finished trainings, and the total.
        on_save_error: function called with the error message if a run cannot be written.
        execution: options of the workers; see ``nas.api.execution.Executing``.

    Raises:
        ViolationError: a genome is not legal.
        ConfigError: a user's own module cannot be trained; the message names file and class.
        NasError: an argument cannot be used; the message names it and what was expected.
    """
    check_count("seeds", seeds)
    options, data = Execution(**execution), data or {}
    resolved = _resolve_all((against, *sources), policy, Path(runs))
    names = [load_task(path, data=data.get(path)).name for path in tasks]
    for name in data.keys() - {*tasks, *names}:
        load_task(name, data=data[name])  # raises TaskError if there is no such task
    loaded = {
        name: load_task(path, data=data.get(path, data.get(name)))
        for path, name in zip(tasks, names, strict=True)
    }
    if len(loaded) < len(tasks):
        raise ConfigError(f"tasks: found {', '.join(tasks)}; expected each once, by its own name.")
    for task in loaded.values():
        check_one_model(task)
    if rates and test:
        raise ConfigError(BY_VALIDATION)
    variants = [
        (name, rate, variant)
        for name, task in loaded.items()
        for rate, variant in _variants(task, rates)
    ]
    repeats = seeds + CHOOSING_SEEDS if rates else seeds
    # All data are loaded before the first training, so that missing data are reported at once.
    examples = {n: task.load_test() if test else task.load() for n, task in loaded.items()}
    reasons = {
        name: {text: why_not(source.mechanism, task) for text, source in resolved.items()}
        for name, task in loaded.items()
    }
    absent = {n: {text: why for text, why in row.items() if why} for n, row in reasons.items()}
    for text, source in resolved.items():
        if isinstance(source, ModuleSource) and all(text in missing for missing in absent.values()):
            raise ConfigError(next(iter(absent.values()))[text])
    total = repeats * sum(len(resolved) - len(absent[name]) for name, _, _ in variants)
    trainings: dict[str, list[TrainingRow]] = {name: [] for name in loaded}
    run_record = _record_of(resolved.values(), on_save_error)
    for name, rate, task in variants:
        present = [source for text, source in resolved.items() if text not in absent[name]]
        if not present:
            continue
        arguments = (present, task, examples[name], options, repeats, seed, record)
        with closing(_train(*arguments, "benchmark", run_record, rate)) as finished:
            for training in finished:
                trainings[name].append(training)
                if on_training is not None:
                    done = sum(map(len, trainings.values()))
                    on_training(name, training, done, total)
    digests = {text: source.mechanism_digest for text, source in resolved.items()}
    result = make_benchmark(digests, trainings, absent, seeds, test=test)
    fingerprints = (task.fingerprint() + examples[name].digest for name, _, task in variants)
    run_record.add_answer("benchmark", [*digests.values(), *fingerprints], result.to_dict())
    return result


def _resolve_all(
    sources: Sequence[str | Path | Genome], policy: str, runs: Path
) -> dict[str, AnyTrainable]:
    """Return the named mechanisms by name; raise ViolationError if a genome breaks the policy."""
    rules, named = load_policy(policy), (resolve_trainable(each, runs) for each in sources)
    resolved = {source.text: source for source in named}
    for source in resolved.values():
        if isinstance(source, Source):
            check_legal(source, rules)
    return resolved


def _variants(task: Task, rates: bool) -> Iterator[tuple[float | None, Task]]:
    """Yield a task, or the task at each of its learning rates, with the rate."""
    if rates:
        yield from task.at_rates().items()
    else:
        yield None, task


def _record_of(sources: Iterable[AnyTrainable], on_error: Callable[[str], None]) -> RunRecord:
    return RunRecord([source.run for source in sources if source.run is not None], on_error)


def _train(
    sources: Sequence[AnyTrainable],
    task: Task,
    data: Data,
    execution: Execution,
    seeds: int,
    seed: int,
    record: str | Path | None,
    purpose: Purpose,
    run_record: RunRecord,
    learning_rate: float | None = None,
) -> Generator[TrainingRow, None, None]:
    """Train each mechanism with each seed and yield the results; closing ends the workers."""
    evaluator = make_evaluator(execution, task, data)
    try:
        if record is not None:
            evaluator = JournaledEvaluator(evaluator, Path(record), task, data)
        recorded = run_record.trainings(purpose)
        for training, row in train(
            sources, task, data, evaluator, seeds, seed, purpose=purpose, known=recorded
        ):
            run_record.add(training)
            yield replace(row, learning_rate=learning_rate)
    finally:
        evaluator.close()


def train(
    sources: Sequence[AnyTrainable],
    task: Task,
    data: Data,
    evaluator: Evaluator,
    repeats: int,
    seed: int,
    **options: Any,
) -> Iterator[tuple[Training, TrainingRow]]:
    """Train mechanisms as ``study`` does, and yield each training with its costs.

    Args:
        repeats, seed, options: see ``study``.
    """
    metric, context = task.metrics(data)[0], cost_context(task, {})
    costs = {s.text: costs_under(resolve_under(task, s.mechanism), context) for s in sources}
    measured = {source.text for source in sources if isinstance(source, ModuleSource)}
    named = [(source.text, source.mechanism) for source in sources]
    for training in study(named, task, data, evaluator, repeats=repeats, seed=seed, **options):
        name, result = training.name, (training.digest, training.repeat, training.evaluation)
        yield training, TrainingRow(name, *result, costs[name], metric, name in measured)
