"""Make a table: every mechanism of a space trained, seed by seed.

Mechanisms are taken in an order drawn once, so that a table that was stopped holds a random part of
its space. Training seeds are those of a search, each mechanism with a start of its own: mechanisms
that shared theirs would share their luck.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from nas.common.errors import TableError
from nas.costs import Setting, costs_of
from nas.evaluation.trial import Trial, run_trials, training_seed
from nas.searching.tabular.table import Origin, Table
from nas.space.validation import load_policy
from nas.space.variation.enumerating import enumerate_space
from nas.store import this_session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nas.evaluation.trial import Evaluation, Evaluator
    from nas.genome import Genome
    from nas.space import SearchSpace
    from nas.store import Document
    from nas.tasks.base import Task


def mechanisms_of(space: SearchSpace, task: Task, limit: int | None = None) -> dict[str, Genome]:
    """The space's mechanisms at a task's sizes by key, in an order drawn once: the first of them.

    Raises:
        SpaceError: there are none.
    """
    model = task.main
    found = dict(
        enumerate_space(space, load_policy(space.policy), model.sizes, is_causal=model.is_causal)
    )
    keys = sorted(found)
    order = np.random.default_rng(0).permutation(len(keys))[:limit]
    return {keys[i]: found[keys[i]] for i in order}


def train_table(
    mechanisms: Mapping[str, Genome],
    task: Task,
    evaluator: Evaluator,
    *,
    seeds: int,
    on_training: Callable[[Trial, Evaluation], None],
) -> dict[str, tuple[Evaluation, ...]]:
    """Train each mechanism with each seed; what an evaluator knows already is not repeated."""
    model = task.main
    setting = Setting(model.sizes, model.qkv_bias, model.is_causal, calibration={})
    trials = [
        Trial(
            key,
            genome,
            training_seed(0, key, repeat),
            repeat=repeat,
            # The first seed of all comes before the second of any.
            work=costs_of(setting.resolve(genome), setting, ["macs"])["macs"] - repeat * 1e15,
        )
        for repeat in range(seeds)
        for key, genome in mechanisms.items()
    ]
    found: dict[tuple[str, int], Evaluation] = {}
    for trial, evaluation in run_trials(evaluator, trials):
        on_training(trial, evaluation)
        found[trial.key, trial.repeat] = evaluation
    return {key: tuple(found[key, repeat] for repeat in range(seeds)) for key in mechanisms}


def table_of(
    name: str,
    about: str,
    documents: tuple[Document, Document, Document],
    mechanisms: Mapping[str, Genome],
    trainings: Mapping[str, tuple[Evaluation, ...]],
    command: str,
) -> Table:
    """A table of what was trained here and now.

    Args:
        documents: space, policy and task.
    """
    hardware = dict.fromkeys(one.hardware for found in trainings.values() for one in found)
    origin = Origin(
        command,
        datetime.now(UTC).date().isoformat(),
        tuple(name for name in hardware if name),
        this_session(command).versions,
    )
    if not mechanisms:
        raise TableError(f"table {name}: there is no mechanism to train.")
    return Table(name, about, *documents, origin, mechanisms, trainings)
