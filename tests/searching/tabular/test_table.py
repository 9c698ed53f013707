"""Tables are written, read and searched; damaged tables are refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tabulate import mechanisms_of, table_of, train_table
from nas.common.errors import TableError
from nas.evaluation.trial import Budget, Evaluation, Trial
from nas.searching.tabular.evaluator import TableEvaluator
from nas.searching.tabular.table import MAX_BYTES, Table, load_table
from nas.space import load_space
from nas.store import Document
from nas.tasks import load_task
from nas.training import Report

TASK = load_task("vit-cifar10")
DOCUMENT = Document.of("x", "name: x\n")


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
    mechanisms = mechanisms_of(load_space("attention_bench"), TASK, limit=40)
    trained = []
    found = train_table(mechanisms, TASK, Invented(), 3, lambda *training: trained.append(training))
    assert len(trained) == 120
    return table_of("x", "about it", (DOCUMENT,) * 3, mechanisms, found, "nas table")


def test_table_reads_back_as_written(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    table.write(path)
    again = load_table(str(path))
    assert again.mechanisms == table.mechanisms
    assert again.origin == table.origin
    assert (again.space, again.task, again.about) == (DOCUMENT, DOCUMENT, "about it")
    for key, trainings in table.trainings.items():
        for one, other in zip(trainings, again.trainings[key], strict=True):
            assert (one.status, one.reason, one.seed) == (other.status, other.reason, other.seed)
            assert other.metrics == pytest.approx(one.metrics, rel=1e-5)
            assert other.reports[0].train_loss == one.reports[0].train_loss
    first = path.read_bytes()
    again.write(path)
    assert path.read_bytes() == first


def trial(table: Table, index: int, repeat: int = 0, work: float = 0.0) -> Trial:
    key = list(table.mechanisms)[index]
    return Trial(key, table.mechanisms[key], seed=0, repeat=repeat, work=work)


def test_search_sees_some_trainings_and_all_others_are_the_truth(
    table: Table,
) -> None:
    key = next(k for k, found in table.trainings.items() if all(one.is_ok for one in found))
    index = list(table.mechanisms).index(key)
    orders = set()
    for seed in range(20):
        evaluator = TableEvaluator(table, seed=seed, seen=2)
        evaluator.submit([trial(table, index, repeat) for repeat in (0, 1)])
        seen = [evaluator.wait()[0][1].metrics["accuracy"] for _ in range(2)]
        whole = [one.metrics["accuracy"] for one in table.trainings[key]]
        assert evaluator.truth(key, "accuracy") == pytest.approx(sum(whole) - sum(seen))
        orders.add(tuple(seen))
    assert len(orders) > 3
    with pytest.raises(TableError, match=r"training 3 of .* expected at most 2"):
        evaluator.submit([trial(table, index, 2)])
    with pytest.raises(TableError, match="holds no mechanism ffff"):
        evaluator.submit([Trial("ffff", table.mechanisms[key], 0)])


def test_evaluator_simulates_workers_with_recorded_times(table: Table) -> None:
    evaluator = TableEvaluator(table, workers=4)
    evaluator.submit([trial(table, i, work=i) for i in range(8)])
    ended = []
    while found := evaluator.wait():
        ended += [one.key for one, _ in found]
    keys = list(table.mechanisms)
    assert (set(ended[:4]), set(ended[4:])) == (set(keys[4:8]), set(keys[:4]))  # most work first
    assert evaluator.now == pytest.approx(5.0)  # two rounds of 2.5 s
    assert evaluator.busy == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no gzip", "cannot be read"),
        (gzip.compress(b""), "is no table of this version"),
        (gzip.compress(b"[]"), "is no table of this version"),
        (gzip.compress(b'{"version": 1}'), "is no table of this version"),
        (gzip.compress(b'{"version": 99}'), "version 99, expected 1"),
        (gzip.compress(bytes(MAX_BYTES + 1)), "more than"),
        (gzip.compress(b"")[:10] + b"\xff" * 40, "error: Error -3"),
        (gzip.compress(b"[" * 90_000), "RecursionError"),
    ],
    ids=["text", "empty", "list", "no_fields", "version", "size", "bytes", "depth"],
)
def test_damaged_table_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "bad.json.gz"
    path.write_bytes(content)
    with pytest.raises(TableError, match=words):
        load_table(str(path))
