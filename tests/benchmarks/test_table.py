"""Tables are made, completed, written and read."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers.recorded import Recorded
from benchmarks.tabular.table import Table, load_table
from benchmarks.tabulate import genomes_of, mechanisms_of, train_table
from nas.evaluation.trial import Budget, Evaluation, Trial
from nas.space import load_space
from nas.tasks import load_task
from nas.training import Report

SPACE = load_space("benchmarks/spaces/attention_bench.yaml")


class Invented:
    """An evaluator with results that are drawn with the seed of each trial."""

    workers = 1

    def __init__(self) -> None:
        self.waiting: list[Trial] = []

    def submit(self, trials: list[Trial]) -> None:
        self.waiting += trials

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        ended, self.waiting = self.waiting, []
        return [(trial, invented(trial)) for trial in ended]


def invented(trial: Trial) -> Evaluation:
    rng = np.random.default_rng(trial.seed)
    budget = Budget(2, 100, "float32")
    reports = tuple(
        Report(e, 2.0 / e, {"accuracy": float(rng.random()), "log_loss": 1.5}, 1.25 * e)
        for e in (1, 2)
    )
    given = (reports, trial.seed, budget, 2.5, 2.5, 0, "table")
    if trial.seed % 5 == 0:
        return Evaluation("failed", "diverged", {}, *given, hardware="a CPU")
    return Evaluation("ok", None, reports[-1].metrics, *given, hardware="a CPU")


@pytest.fixture(scope="module")
def table() -> Table:
    task = load_task("vit-cifar10")
    mechanisms = mechanisms_of(SPACE, task, genomes_of(SPACE, task, 40), 40)
    assert len(mechanisms) == 40
    empty = replace(load_table("attention-bench"), mechanisms=mechanisms, trainings={})
    partial = list(islice(train_table(empty, Invented(), 3), 50))[-1]
    assert sum(map(len, partial.trainings.values())) == 50
    *_, whole = train_table(partial, Invented(), 3)
    assert {len(rows) for rows in whole.trainings.values()} == {whole.repeats} == {3}
    return whole


def test_table_reads_back_as_written(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    table.write(path)
    again = load_table(path)
    assert again.mechanisms == table.mechanisms
    assert (again.origin, again.space, again.about) == (table.origin, table.space, table.about)
    for key, trainings in table.trainings.items():
        for one, other in zip(trainings, again.trainings[key], strict=True):
            assert (one.status, one.reason, one.seed) == (other.status, other.reason, other.seed)
            assert other.metrics == pytest.approx(one.metrics, rel=1e-5)
            assert other.reports[0].train_loss == one.reports[0].train_loss
    first = path.read_bytes()
    again.write(path)
    assert path.read_bytes() == first


def test_table_of_a_space_has_all_its_mechanisms() -> None:
    recorded = load_table("attention-bench")
    space, _ = recorded.load_space()
    assert space.model_dump(exclude={"context"}) == SPACE.model_dump(exclude={"context"})
    task = load_task("vit-cifar10")
    assert set(mechanisms_of(SPACE, task, genomes_of(SPACE, task))) == set(recorded.mechanisms)


def test_search_sees_some_trainings_and_all_others_are_the_truth() -> None:
    table, orders = load_table("attention-bench"), set()
    key = next(iter(table.mechanisms))
    whole = [-training.metrics["accuracy"] for training in table.trainings[key]]
    for seed in range(20):
        recorded = Recorded("attention-bench", seen=2, seed=seed)
        seen = tuple(recorded.evaluate(key, repeat)[0] for repeat in (0, 1))
        assert recorded.truth(key)[0] == pytest.approx(sum(whole) - sum(seen))
        assert recorded.evaluate(key, 2)[0] == seen[1]  # the last one is repeated
        orders.add(seen)
    assert len(orders) > 3
