"""Train every mechanism of a space with several seeds, so that searches can be replayed.

    python -m benchmarks.tabulate benchmarks/spaces/attention_bench.yaml -o mine.json.gz

Mechanisms are trained in random order, so that an incomplete table holds a random part of its
space. Each mechanism has training seeds of its own, as in a search; shared seeds would correlate
errors. The table is written after each training, and the same command completes it.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.peers.encodings import ENCODINGS
from benchmarks.tabular.table import SUFFIX, Table, load_table
from nas.common.errors import TaskError
from nas.costs import costs_of, need_calibration
from nas.evaluation.execution import Execution, make_evaluator
from nas.evaluation.trainer import calibrate_for
from nas.evaluation.trial import Evaluator, Trial, run_trials, training_seed
from nas.genome import Genome
from nas.space import SearchSpace, load_space
from nas.space.rules import load_policy, validate
from nas.space.space import TaskChoice
from nas.space.vary import Variation
from nas.store import this_session
from nas.store.frozen import frozen_space, frozen_task
from nas.store.sources import resolve
from nas.tasks import Data, Task, load_task

MAX_KNOWN: Final = 1000  # samples in a row without a new mechanism, after which sampling ends


def genomes_of(space: SearchSpace, task: Task, limit: int | None = None) -> Iterator[Genome]:
    """Yield genomes of a space; several may be the same mechanism.

    Args:
        limit: whether random genomes are drawn by the grammar of the space; if None, all genomes
            of a space in ``ENCODINGS`` are yielded.
    """
    if limit is None:
        encoding = ENCODINGS[space.name]
        yield from map(encoding.genome, encoding.assignments(encoding.choices))
        return
    variation, rng = Variation(space, load_policy(space.policy), task.main.is_causal), _rng()
    while True:
        yield variation.sample(rng)


def mechanisms_of(
    space: SearchSpace, task: Task, genomes: Iterator[Genome], limit: int | None = None
) -> dict[str, Genome]:
    """Return the mechanisms of a space among genomes, in normal form at a task's sizes.

    Args:
        limit: largest number of mechanisms. By default, all are returned in random order.
    """
    policy, mechanisms, num_known = load_policy(space.policy), dict[str, Genome](), 0
    for genome in genomes:
        resolved = task.resolve(genome)
        num_known += 1
        if (
            resolved.key not in mechanisms
            and not validate(resolved.genome, policy)
            and space.excludes(resolved.genome, resolved.sizes.depth) is None
        ):
            mechanisms[resolved.key] = resolved.genome
            num_known = 0
        if limit is not None and (len(mechanisms) == limit or num_known == MAX_KNOWN):
            return mechanisms
    keys = sorted(mechanisms)
    return {keys[i]: mechanisms[keys[i]] for i in _rng().permutation(len(keys))}


def train_table(table: Table, evaluator: Evaluator, seeds: int) -> Iterator[Table]:
    """Train all mechanisms with the first seed, then all with the second; yield growing tables.

    Trainings that the table contains are not repeated.
    """
    works = {key: table.cost(key, "macs") for key in table.mechanisms}
    for repeat in range(seeds):
        trials = [
            Trial(key, genome, training_seed(0, key, repeat), repeat=repeat, work=works[key])
            for key, genome in table.mechanisms.items()
            if len(table.trainings.get(key, ())) <= repeat
        ]
        for trial, evaluation in run_trials(evaluator, trials):
            rows = (*table.trainings.get(trial.key, ()), evaluation)
            table = replace(table, trainings={**table.trainings, trial.key: rows})
            yield table


def begin_table(options: argparse.Namespace, space: SearchSpace, task: Task, data: Data) -> Table:
    """Return a table without trainings, or with those of an incomplete table of the same task."""
    genomes = genomes_of(space, task, options.limit)
    if options.sources:
        genomes = (resolve(source).genome for source in options.sources)
    mechanisms = mechanisms_of(space, task, genomes, options.limit)
    command = shlex.join(["python -m benchmarks.tabulate", *sys.argv[1:]])
    session, date = this_session(command), datetime.now(UTC).date().isoformat()
    origin = {"command": command, "date": date, "hardware": [session.hardware]}
    table = Table(
        options.output.name.removesuffix(SUFFIX),
        options.about,
        *frozen_space(space),
        frozen_task(task, data),
        origin | {"versions": session.versions},
        mechanisms,
        trainings={},
    )
    if not options.output.exists():
        return table
    begun = load_table(options.output)
    if begun.task != table.task:
        raise TaskError(f"{options.output} has trainings of another task or of other data.")
    return replace(table, trainings=begun.trainings, times=begun.times)


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tabulate", description=__doc__)
    parser.add_argument("space", help="a search space, by name or path")
    parser.add_argument("sources", nargs="*", help="mechanisms of the space, in place of all")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the table: NAME.json.gz")
    parser.add_argument("--about", default="", help="a description in one sentence")
    parser.add_argument("--task", help="a task, by name or path; default: that of the space")
    parser.add_argument("--data", help="training data, as for `nas search`")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each mechanism")
    parser.add_argument("--limit", type=int, help="number of random mechanisms; default: all")
    parser.add_argument("--backend", default="ray", help="ray, or local: in this process")
    parser.add_argument("--workers", help="number of workers")
    return parser.parse_args()


def main() -> None:
    """Make a table from command-line arguments."""
    options = _options()
    space = load_space(options.space)
    chosen = space.task if options.task is None else TaskChoice(name=options.task)
    source = options.data or chosen.data
    task = load_task(chosen.name, data=source, overrides=chosen.model_extra).main
    data = task.load()
    table = begin_table(options, space, task, data)
    evaluator = make_evaluator(Execution(options.backend, options.workers), task, data)
    try:
        if need_calibration(space.objectives) and not table.times:
            units = evaluator.measure(lambda device: calibrate_for(task, device))
            context = replace(table.setting, calibration=units)
            resolved = {key: context.resolve(g) for key, g in table.mechanisms.items()}
            times = {k: costs_of(r, context, ["time_ms"])["time_ms"] for k, r in resolved.items()}
            table = replace(table, times=times)
        for grown in train_table(table, evaluator, options.seeds):
            grown.write(options.output)
            done = sum(map(len, grown.trainings.values()))
            print(f"{done} of {options.seeds * len(table.mechanisms)} trainings", file=sys.stderr)
    finally:
        evaluator.close()


if __name__ == "__main__":
    main()
