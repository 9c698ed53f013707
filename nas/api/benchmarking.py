"""Benchmark: mechanisms under several tasks at once, each compared with one of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.api.training import check_legal, check_one_model, execution_of, trainings_of
from nas.common.errors import ConfigError, RunError
from nas.evaluation.study import why_not
from nas.genome.canonical import digest
from nas.report.benchmark import benchmark_answer
from nas.searching.setup import check_count
from nas.space.validation import load_policy
from nas.store import RUNS
from nas.store.answers import keep_answer
from nas.store.sources import resolve
from nas.tasks import load_task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    from nas.api.training import Executing
    from nas.genome import Genome
    from nas.report.trials import Training

LOGGER: Final = logging.getLogger("nas")
TASKS: Final = ("recall", "induction", "copying", "bytes", "text-classification", "vit-cifar10")


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
    heard: Callable[[str, Training, int, int], None] | None = None,
    unkept: Callable[[str], None] = LOGGER.warning,
    **execution: Unpack[Executing],
) -> dict[str, Any]:
    """Train mechanisms under several tasks; the answer of ``nas benchmark --json``.

    If one is a RUN/ID, the answer is kept in the run's folder, for its report.

    Args:
        sources: SOURCE strings or genomes.
        against: what all are compared with, by trainings that share their seed.
        tasks: by name or path; by default six of the built-in ones, on tokens and on images.
        data: by task, what to train it on in place of its own.
        seeds: trainings of each under each.
        record: a file that keeps every finished training; what it holds is not repeated.
        test: judge on the test sets in place of what is held out of training.
        heard: called with a task's name, each training under it, how many have ended, and how
            many there are.
        unkept: called with why the answer could not be kept in a run's folder; by default the
            logger ``nas`` is told.

    Raises:
        ViolationError: a genome is not legal.
        NasError: something given cannot be used; the message says what and why.
    """
    check_count("seeds", seeds)
    rules, given, data = load_policy(policy), execution_of(execution), data or {}
    resolved = {one.text: one for one in (resolve(s, Path(runs)) for s in (against, *sources))}
    for one in resolved.values():
        check_legal(one, rules)
    if unknown := set(data) - set(tasks):
        raise ConfigError(
            f"data: found {', '.join(sorted(unknown))}; expected tasks among {', '.join(tasks)}."
        )
    loaded = {task.name: task for task in (load_task(n, data=data.get(n)) for n in tasks)}
    if len(loaded) < len(tasks):
        raise ConfigError(f"tasks: found {', '.join(tasks)}; expected each once, by its own name.")
    for task in loaded.values():
        check_one_model(task)
    ready = {  # what is missing is said at once
        name: task.load_test() if test else task.load() for name, task in loaded.items()
    }
    absent = {
        name: {text: why for text, one in resolved.items() if (why := why_not(one.genome, task))}
        for name, task in loaded.items()
    }
    total = seeds * sum(len(resolved) - len(left_out) for left_out in absent.values())
    found: dict[str, list[Training]] = {name: [] for name in loaded}
    done = 0
    for name, task in loaded.items():
        here = [one for text, one in resolved.items() if text not in absent[name]]
        if not here:
            continue
        for training in trainings_of(here, task, ready[name], given, seeds, seed, record):
            found[name].append(training)
            done += 1
            if heard is not None:
                heard(name, training, done, total)
    digests = {text: digest(one.genome) for text, one in resolved.items()}
    answer = benchmark_answer(list(resolved), found, absent, seeds, test=test)
    for row in answer["mechanisms"]:
        row["id"] = digests[row["source"]]
    question = [*digests.values(), *(t.fingerprint() + ready[n].digest for n, t in loaded.items())]
    for run in {one.run for one in resolved.values() if one.run is not None}:
        try:
            keep_answer(run, "benchmark", question, answer)
        except RunError as error:
            unkept(str(error))
    return answer
