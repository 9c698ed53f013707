"""Evaluate and benchmark: train mechanisms without a search."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Unpack

from nas.api.execution import Executing, check_legal, check_one_model, execution_of
from nas.common.errors import ConfigError
from nas.common.search_config import check_count
from nas.costs import costs_of
from nas.evaluation.execution import Execution, make_evaluator
from nas.evaluation.journal import JournaledEvaluator
from nas.evaluation.study import study, why_not
from nas.evaluation.trial import Purpose
from nas.genome import Genome
from nas.genome.canonical import digest
from nas.report.benchmark import BenchmarkResult, make_benchmark
from nas.report.trials import EvaluateResult, TrainingRow
from nas.searching.setup import cost_context
from nas.space.validation import load_policy
from nas.store import RUNS
from nas.store.appending import RunRecord
from nas.store.sources import Source, resolve
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

    >>> result = nas.evaluate(["mha", "uniform"], task="tiny.yaml", backend="local")
    >>> [training.evaluation.status for training in result.trainings]
    ['ok', 'ok']
    >>> sorted(result.to_pandas()["source"])
    ['mha', 'uniform']

    Args:
        sources: SOURCE strings or genomes.
        task: a task, by name or path.
        data: training data, as the task's family names them; the task's by default.
        overrides: fields of the task to set.
        seeds: trainings of each mechanism; all mechanisms share the seeds.
        seed: the seeds of trainings derive from it.
        policy: rules that genomes must obey, by name or path; members of a run obey the run's.
        record: a file of finished trainings, which are not repeated.
        test: evaluate on the test set in place of examples held out of training.
        runs: the folder of runs.
        on_training: called with each finished training, the number finished, and the total.
        execution: options of the workers; see ``nas.api.execution.Executing``.

    Raises:
        ViolationError: a genome is not legal.
        NasError: an argument cannot be used; the message names it and what was expected.
    """
    check_count("seeds", seeds)
    rules, chosen = load_policy(policy), execution_of(execution)
    resolved = _resolve_all(sources, Path(runs))
    for source in resolved.values():
        check_legal(source, rules)
    loaded = load_task(task, data=data, overrides=overrides)
    check_one_model(loaded)
    examples = loaded.load_test() if test else loaded.load()
    trainings: list[TrainingRow] = []
    arguments = ([*resolved.values()], loaded, examples, chosen, seeds, seed, record)
    run_record = _record_of(resolved.values(), LOGGER.warning)
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
    policy: str = "score_normalize_aggregate",
    record: str | Path | None = None,
    test: bool = False,
    runs: str | Path = RUNS,
    on_training: Callable[[str, TrainingRow, int, int], None] | None = None,
    on_save_error: Callable[[str], None] = LOGGER.warning,
    **execution: Unpack[Executing],
) -> BenchmarkResult:
    """Train mechanisms under several tasks and compare each with one of them.

    If a source is a member of a run, the run records trainings and result for its report;
    recorded trainings are not repeated.

    >>> result = nas.benchmark(["uniform"], tasks=["tiny.yaml"], seeds=2, backend="local")
    >>> [row.source for row in result.mechanisms], list(result.tasks)
    (['mha', 'uniform'], ['tiny'])

    Args:
        sources: SOURCE strings or genomes.
        against: the reference; differences are between trainings that share their seed.
        tasks: by name or path; six built-in ones on tokens and images by default.
        data: training data by task, in place of the task's.
        seeds: trainings of each mechanism under each task.
        seed: the seeds of trainings derive from it.
        policy: rules that genomes must obey, by name or path.
        record: a file of finished trainings, which are not repeated.
        test: evaluate on test sets in place of examples held out of training.
        runs: the folder of runs.
        on_training: called with the task's name, each finished training, the number finished, and
            the total.
        on_save_error: called with the reason if a run cannot be written; logs a warning by default.
        execution: options of the workers; see ``nas.api.execution.Executing``.

    Raises:
        ViolationError: a genome is not legal.
        NasError: an argument cannot be used; the message names it and what was expected.
    """
    check_count("seeds", seeds)
    rules, chosen, data = load_policy(policy), execution_of(execution), data or {}
    resolved = _resolve_all((against, *sources), Path(runs))
    for source in resolved.values():
        check_legal(source, rules)
    if unknown := set(data) - set(tasks):
        raise ConfigError(
            f"data: found {', '.join(sorted(unknown))}; expected tasks among {', '.join(tasks)}."
        )
    loaded = {task.name: task for task in (load_task(n, data=data.get(n)) for n in tasks)}
    if len(loaded) < len(tasks):
        raise ConfigError(f"tasks: found {', '.join(tasks)}; expected each once, by its own name.")
    for task in loaded.values():
        check_one_model(task)
    # All data are loaded before the first training, so that missing ones are reported at once.
    examples = {n: task.load_test() if test else task.load() for n, task in loaded.items()}
    absent = {
        name: {
            text: reason
            for text, source in resolved.items()
            if (reason := why_not(source.genome, task))
        }
        for name, task in loaded.items()
    }
    total = seeds * sum(len(resolved) - len(missing) for missing in absent.values())
    trainings: dict[str, list[TrainingRow]] = {name: [] for name in loaded}
    run_record = _record_of(resolved.values(), on_save_error)
    for name, task in loaded.items():
        present = [source for text, source in resolved.items() if text not in absent[name]]
        if not present:
            continue
        arguments = (present, task, examples[name], chosen, seeds, seed, record)
        with closing(_train(*arguments, "benchmark", run_record)) as finished:
            for training in finished:
                trainings[name].append(training)
                if on_training is not None:
                    done = sum(map(len, trainings.values()))
                    on_training(name, training, done, total)
    digests = {text: digest(source.genome) for text, source in resolved.items()}
    result = make_benchmark(digests, trainings, absent, seeds, test=test)
    fingerprints = (task.fingerprint() + examples[name].digest for name, task in loaded.items())
    question = [*digests.values(), *fingerprints]
    run_record.add_answer("benchmark", question, result.to_dict())
    return result


def _resolve_all(sources: Sequence[str | Path | Genome], runs: Path) -> dict[str, Source]:
    """Each source's text and the resolved source; duplicates appear once."""
    resolved = (resolve(source, runs) for source in sources)
    return {source.text: source for source in resolved}


def _record_of(sources: Iterable[Source], on_error: Callable[[str], None]) -> RunRecord:
    """The record of all runs that have a source as a member."""
    return RunRecord([source.run for source in sources if source.run is not None], on_error)


def _train(
    sources: Sequence[Source],
    task: Task,
    data: Data,
    execution: Execution,
    seeds: int,
    seed: int,
    record: str | Path | None,
    purpose: Purpose,
    run_record: RunRecord,
) -> Generator[TrainingRow, None, None]:
    """Train each source with each seed; workers exist until the generator is closed."""
    metric, setting = task.metrics(data)[0], cost_context(task, {})
    costs = {source.text: costs_of(task.resolve(source.genome), setting) for source in sources}
    evaluator = make_evaluator(execution, task, data)
    try:
        if record is not None:
            evaluator = JournaledEvaluator(evaluator, Path(record), task, data)
        named = [(source.text, source.genome) for source in sources]
        recorded = run_record.trainings(purpose)
        for training in study(
            named, task, data, evaluator, repeats=seeds, seed=seed, purpose=purpose, known=recorded
        ):
            run_record.add(training)
            result = (training.name, training.digest, training.repeat, training.evaluation)
            yield TrainingRow(*result, costs=costs[training.name], metric=metric)
    finally:
        evaluator.close()
