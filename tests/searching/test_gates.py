"""A search under a gated task: gates, the limit of its metric, interruptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.common.errors import ConfigError
from nas.common.objectives import SearchConfig
from nas.evaluation.trainer import LocalEvaluator
from nas.report.recorded import trainings_of, trainings_table
from nas.report.run_view import RunView
from nas.searching.driver import resume_search, run_search
from nas.searching.listener import Listener
from nas.space import SearchSpace
from nas.store import open_run
from nas.store.frozen import load_frozen_task
from nas.tasks import Task, parse_task

from .conftest import Table

SPACE = SearchSpace.model_validate(
    {
        "name": "small",
        "causal": True,
        "nodes": {"max": 4},
        "primitives": {
            "scaled_dot_product": {}, "softmax": {}, "uniform": {}, "weighted_sum": {}
        },
        "projections": {"has_wq": [True, False], "has_wo": [True, False]},
        "mechanisms": ["mha", "uniform"],
        "objectives": ["quality", "macs"],
        "region": {"quality": 0.5, "macs": 0.9},
    }
)  # fmt: skip
RECALL = {
    "name": "recall", "width": 32, "heads": 2, "epochs": 1, "train_examples": 1500,
    "batch_size": 50, "validation_examples": 256, "curve_examples": 16, "pairs": 4, "num_keys": 8,
    "num_values": 4, "learning_rate": 0.01,
}  # fmt: skip
GATE = {"task": RECALL, "metric": "accuracy", "at_least": 0.7}
CONFIG = SearchConfig(population=6, generations=1)


def gated() -> Task:
    fields = {"kind": "gated", "name": "recall twice", "task": RECALL, "gates": {"first": GATE}}
    return parse_task(fields, "here")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Any:
    references, listener = [], Listener()
    listener.on_reference = lambda *counts: references.append(counts)
    words = {"root": tmp_path_factory.mktemp("runs"), "name": "gates", "listener": listener}
    return run_search(SPACE, gated(), CONFIG, make_evaluator=LocalEvaluator, **words), references


def test_references_are_trained_without_gates_and_recorded(searched: Any) -> None:
    ended, references = searched
    assert ended.run == "gates"
    assert references == [(i, 6) for i in range(1, 7)]
    with open_run(ended.folder) as run:
        trained = run.trainings("reference")
        assert all(t.evaluation.is_ok for t in trained)  # ``uniform`` would miss the gate
        mha, uniform = (
            np.mean([t.evaluation.metrics["accuracy"] for t in trained if t.name == name])
            for name in ("mha", "uniform")
        )
        assert mha > 0.9 > 0.6 > uniform > 0.4
        accuracy, macs = run.setup.objectives
        assert accuracy.name == run.setup.metrics[0].name == "accuracy"
        assert accuracy.limit == pytest.approx((mha + uniform) / 2)
        known = {c.proposal.name: c for c in run.candidates() if c.is_ok}
        assert macs.limit == pytest.approx(0.9 * known["mha"].objectives["macs"])
        assert known["mha"].is_ok
        assert load_frozen_task(run.setup.task) == gated()


def test_mechanism_that_misses_a_gate_is_no_candidate(searched: Any) -> None:
    ended, _ = searched
    with open_run(ended.folder) as run:
        keys = {p.name: str(p.key) for p in run.proposals() if p.is_trained}
        [missed, *_] = (t.evaluation for t in run.trainings(keys=[keys["uniform"]]))
        assert missed.status == "stopped"
        assert missed.error.startswith("gate of first: accuracy is 0.")
        assert len(missed.reports) == 1
        assert run.front()
        assert not {"mha", "uniform"} & {c.proposal.name for c in run.front()}
        assert run.counts().stopped >= 1
        assert run.counts().failed == 0
        missing = next(p.digest for p in run.proposals() if p.name == "uniform")
    again = resume_search(ended.folder, make_evaluator=LocalEvaluator)
    assert again.counts == ended.counts
    with open_run(ended.folder) as run:
        view = RunView.read(run)
    rows = trainings_of(view, view.by_digest[missing])
    (training,) = trainings_table(view, rows).records()
    assert training["status"] == "stopped"
    assert str(training["error"]).startswith("gate of first")


def test_interrupted_references_leave_no_run(tmp_path: Path) -> None:
    interrupted = lambda *_, **__: Table(stop_after=1)  # noqa: E731
    with pytest.raises(KeyboardInterrupt):
        run_search(SPACE, gated(), CONFIG, make_evaluator=interrupted, root=tmp_path)
    assert not any(tmp_path.iterdir())


def test_limit_of_a_metric_of_a_gate_is_refused(tmp_path: Path) -> None:
    names = ["quality", "first.accuracy", "macs"]
    space = SPACE.asked(names, {"first.accuracy": 0.5})
    with pytest.raises(ConfigError, match=r"expected one that measures first\.accuracy"):
        run_search(space, gated(), CONFIG, make_evaluator=LocalEvaluator, root=tmp_path)
