"""Make a table of trainings: train all mechanisms of a space, so that searches can be replayed.

    python -m benchmarks.tabulate attention_bench -o mine.json.gz --task mine.yaml --seeds 3

Mechanisms are trained in random order, so that an interrupted table holds a random part of its
space. Each mechanism has training seeds of its own, as in a search; shared seeds would correlate
errors. Finished trainings are kept in a file beside the table. The same command continues where it
was interrupted.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.enumerating import enumerate_space
from nas.api.execution import check_one_model, task_of
from nas.common.errors import NasError, TableError
from nas.common.search_config import check_count
from nas.costs import costs_of, need_calibration
from nas.evaluation.backends import make_evaluator
from nas.evaluation.execution import Execution
from nas.evaluation.journal import JournaledEvaluator
from nas.evaluation.trial import Trial, run_trials, training_seed
from nas.searching.setup import cost_context
from nas.searching.tabular.table import SUFFIX, Origin, Table
from nas.space import load_space
from nas.space.rules import load_policy, validate
from nas.space.vary import Variation
from nas.store import this_session
from nas.store.frozen import frozen_space, frozen_task
from nas.store.sources import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nas.evaluation.trial import Evaluation, Evaluator
    from nas.genome import Genome
    from nas.space import SearchSpace
    from nas.store import Document
    from nas.tasks.base import Task

MAX_KNOWN: Final = 1000  # samples in a row without a new mechanism, after which sampling ends


def tabulate(
    space: str,
    path: Path,
    sources: Sequence[str] = (),
    *,
    about: str = "",
    task: str | None = None,
    data: str | None = None,
    seeds: int = 3,
    limit: int | None = None,
    command: str = "",
    backend: str = "ray",
    workers: str | None = None,
) -> Table:
    """Train mechanisms of a space with several seeds, and write the table.

    Args:
        space: name or path of a search space.
        path: file of the table, NAME.json.gz.
        sources: SOURCE strings of the mechanisms to train; by default all or ``limit``.
        about: description of the table in one sentence.
        task: name or path of a task; by default the task of the space.
        limit: number of mechanisms to draw at random by the grammar of the space; by default all
            mechanisms of the space are trained.
        command: command line that is recorded in the table.

    Raises:
        NasError: an argument cannot be used; the message names it and what was expected.
    """
    check_count("seeds", seeds)
    if not path.name.endswith(SUFFIX) or path.name == SUFFIX:
        raise TableError(f"{path}: expected a name that ends in {SUFFIX}.")
    if limit is not None:
        check_count("limit", limit)
    search_space = load_space(space)
    training_task = task_of(search_space, task, data)
    check_one_model(training_task)
    if sources:
        genomes = [resolve(source).genome for source in sources]
        mechanisms = _members(search_space, training_task, genomes)
    else:
        mechanisms = mechanisms_of(search_space, training_task, limit)
    dataset, name = training_task.load(), path.name.removesuffix(SUFFIX)
    total, done = seeds * len(mechanisms), 0

    def on_training(trial: Trial, evaluation: Evaluation) -> None:
        nonlocal done
        done += 1
        metrics = ", ".join(f"{n} {value:.4g}" for n, value in evaluation.metrics.items())
        result = metrics or f"{evaluation.status} ({evaluation.reason})"
        print(f"[{done}/{total}] {trial.key[:8]}, seed {trial.repeat}: {result}", file=sys.stderr)

    evaluator = make_evaluator(Execution(backend, workers), training_task, dataset)
    try:
        evaluator = JournaledEvaluator(
            evaluator, path.with_name(f"{name}.jsonl"), training_task, dataset
        )
        trainings = train_table(mechanisms, training_task, evaluator, seeds, on_training)
        times = evaluator.calibrate() if need_calibration(search_space.objectives) else {}
    finally:
        evaluator.close()
    documents = (*frozen_space(search_space), frozen_task(training_task, dataset))
    table = table_of(name, about, documents, mechanisms, trainings, command, times)
    table.write(path)
    return table


def mechanisms_of(space: SearchSpace, task: Task, limit: int | None = None) -> dict[str, Genome]:
    """Return mechanisms of a space by digest, as genomes in normal form at a task's sizes.

    Args:
        limit: number of distinct mechanisms to sample, without an enumeration of the space; fewer
            if ``MAX_KNOWN`` samples in a row are not new. By default, all mechanisms of the space
            are returned in random order.

    Raises:
        SpaceError: the space has no mechanism.
    """
    model, policy, rng = task.main, load_policy(space.policy), np.random.default_rng(0)
    if limit is None:
        genomes = dict(enumerate_space(space, policy, model.sizes, is_causal=model.is_causal))
        keys = sorted(genomes)
        return {keys[i]: genomes[keys[i]] for i in rng.permutation(len(keys))}
    variation = Variation(space, policy, model.is_causal)
    mechanisms: dict[str, Genome] = {}
    num_known = 0
    while len(mechanisms) < limit and num_known < MAX_KNOWN:
        resolved = task.resolve(variation.sample(rng))
        num_known += 1
        excluded = space.excludes(resolved.genome, model.depth)
        if resolved.key not in mechanisms and excluded is None:
            mechanisms[resolved.key] = resolved.genome
            num_known = 0
    return mechanisms


def train_table(
    mechanisms: Mapping[str, Genome],
    task: Task,
    evaluator: Evaluator,
    seeds: int,
    on_training: Callable[[Trial, Evaluation], None],
) -> dict[str, tuple[Evaluation, ...]]:
    """Train all mechanisms with the first seed, then all with the second, and so on."""
    context = cost_context(task, {})
    work = {
        key: costs_of(context.resolve(genome), context, ["macs"])["macs"]
        for key, genome in mechanisms.items()
    }
    evaluations: dict[str, list[Evaluation]] = {key: [] for key in mechanisms}
    for repeat in range(seeds):
        trials = [
            Trial(key, genome, training_seed(0, key, repeat), repeat=repeat, work=work[key])
            for key, genome in mechanisms.items()
        ]
        for trial, evaluation in run_trials(evaluator, trials):
            on_training(trial, evaluation)
            evaluations[trial.key].append(evaluation)
    return {key: tuple(rows) for key, rows in evaluations.items()}


def table_of(
    name: str,
    about: str,
    documents: tuple[Document, Document, Document],
    mechanisms: Mapping[str, Genome],
    trainings: Mapping[str, tuple[Evaluation, ...]],
    command: str,
    calibration: Mapping[str, Any] | None = None,
) -> Table:
    """Return a table of trainings on this machine, with today's date.

    Args:
        documents: the documents of space, policy and task.
        calibration: unit times of this machine, see ``Table``.

    Raises:
        TableError: there are no mechanisms.
    """
    if not mechanisms:
        raise TableError(f"table {name}: there is no mechanism to train.")
    hardware = dict.fromkeys(e.hardware for rows in trainings.values() for e in rows)
    origin = Origin(
        command,
        datetime.now(UTC).date().isoformat(),
        tuple(name for name in hardware if name),
        this_session(command).versions,
    )
    return Table(name, about, *documents, origin, mechanisms, trainings, calibration or {})


def _members(space: SearchSpace, task: Task, genomes: Sequence[Genome]) -> dict[str, Genome]:
    """Return genomes in normal form by digest; raise an error if one is not in the space."""
    members, policy = {}, load_policy(space.policy)
    for genome in genomes:
        resolved = task.resolve(genome)
        if space.excludes(resolved.genome, resolved.sizes.depth) or validate(
            resolved.genome, policy
        ):
            raise TableError(f"mechanism {resolved.key} is not in the space {space.name}.")
        members[resolved.key] = resolved.genome
    return members


def main(words: Sequence[str] | None = None) -> None:
    """Make a table from command-line arguments."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tabulate", description=__doc__)
    parser.add_argument("space", help="a search space, by name or path")
    parser.add_argument("sources", nargs="*", help="mechanisms of the space, in place of all")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the table: NAME.json.gz")
    parser.add_argument("--about", default="", help="a description in one sentence")
    parser.add_argument("--task", help="a task, by name or path")
    parser.add_argument("--data", help="training data, as for `nas search`")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each mechanism")
    parser.add_argument("--limit", type=int, help="number of random mechanisms; default: all")
    parser.add_argument("--backend", default="ray", help="ray, or local: in this process")
    parser.add_argument("--workers", help="number of workers")
    options = vars(parser.parse_args(words))
    path, command = options.pop("output"), shlex.join([parser.prog, *(words or sys.argv[1:])])
    try:
        table = tabulate(options.pop("space"), path, command=command, **options)
    except NasError as error:
        parser.exit(error.exit_status, f"{error}\n")
    print(f"{path}: {len(table.mechanisms)} mechanisms, {table.repeats} trainings of each.")


if __name__ == "__main__":
    main()
