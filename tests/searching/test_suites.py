"""A search over several tasks: references, required scores, and the worst regret."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from nas.common.search_config import SearchConfig
from nas.evaluation.local import LocalEvaluator
from nas.report.history import history_of, results
from nas.searching.checking import check_run
from nas.searching.driver import resume_search, run_search
from nas.searching.listener import Listener
from nas.space import SearchSpace
from nas.store import candidates, open_run
from nas.tasks import parse_task
from nas.tasks.suite import Suite

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
    }
)  # fmt: skip
RECALL = {
    "task": "recall", "width": 32, "heads": 2, "epochs": 1, "train_examples": 1500,
    "batch_size": 50, "validation_examples": 256, "curve_examples": 16, "pairs": 4, "num_keys": 8,
    "num_values": 4, "learning_rate": 0.01,
}  # fmt: skip
GATE = {"metric": "accuracy", "at_least": 0.7}


def suite_of(**members: Any) -> Any:
    return parse_task({"kind": "suite", "name": "recall twice", "members": members}, "here")


class Counting(Listener):
    def __init__(self) -> None:
        self.references: list[tuple[int, int]] = []

    def on_reference(self, done: int, total: int) -> None:
        self.references.append((done, total))


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Any:
    heard = Counting()
    ended = run_search(
        SPACE,
        suite_of(gate={**RECALL, "gate": GATE}, recall=RECALL),
        SearchConfig(population=5, generations=1),
        make_evaluator=LocalEvaluator,
        root=tmp_path_factory.mktemp("runs"),
        listener=heard,
    )
    return ended, heard


def test_references_are_trained_once_and_recorded(searched: Any) -> None:
    ended, heard = searched
    assert heard.references == [(i, 6) for i in range(1, 7)]
    with open_run(ended.folder) as run:
        task = parse_task_of(run)
        (reference,) = task.references.values()
        assert reference.metric == "accuracy"
        assert reference.mha > 0.9 > 0.6 > reference.uniform > 0.4
        objective, metric = run.setup.objectives[0], run.setup.metrics[0]
        assert objective.name == metric.name == "worst_regret"
        assert objective.ideal == metric.ideal
        own = {c.proposal.name: c for c in candidates(run)}
        assert abs(own["mha"].scores["worst_regret"]) < 0.5  # one training, of a tiny model


def parse_task_of(run: Any) -> Suite:
    from nas.store.frozen import load_frozen_task

    task = load_frozen_task(run.setup.task)
    assert isinstance(task, Suite)
    return task


def test_mechanism_that_misses_a_required_score_is_no_candidate(searched: Any) -> None:
    ended, _ = searched
    with open_run(ended.folder) as run:
        keys = {p.name: str(p.key) for p in run.proposals() if p.is_trained}
        [missed, *_] = (t.evaluation for t in run.trainings(key=keys["uniform"]))
        assert missed.status == "stopped"
        assert missed.error.startswith("gate of gate: accuracy is 0.")
        assert len(missed.reports) == 1
        members = {c.proposal.name for c in run.front()}
        assert "mha" in {c.proposal.name for c in candidates(run)}
        assert "uniform" not in members
        assert run.counts().stopped >= 1
        assert run.counts().failed == 0
        best = run.front()[0].digest
        missing = next(p.digest for p in run.proposals() if p.name == "uniform")
    again = resume_search(ended.folder, make_evaluator=LocalEvaluator)
    assert again.counts == ended.counts
    own = named(results(history_of(ended.folder, best)))
    assert {"gate.accuracy % by epoch", "recall.accuracy % by epoch"} <= own.keys()
    assert named(results(history_of(ended.folder, missing)))["stopped"].startswith("gate of gate")


def named(columns: Any) -> dict[str, str]:
    names, values = (column.cells for column in columns)
    return dict(zip(names, values, strict=True))


class Interrupted(LocalEvaluator):
    """An evaluator that is interrupted after some trainings."""

    left = 4
    trained: ClassVar[list[int]] = []

    def wait(self) -> Any:
        if not Interrupted.left:
            raise KeyboardInterrupt
        finished = super().wait()
        Interrupted.left -= len(finished)
        Interrupted.trained += [trial.seed for trial, _ in finished]
        return finished


@pytest.mark.slow
def test_interrupted_references_are_resumed_without_repeating(
    searched: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = suite_of(gate={**RECALL, "gate": GATE}, recall=RECALL)
    ended = run_search(
        SPACE,
        suite,
        SearchConfig(population=5, generations=1),
        make_evaluator=Interrupted,
        root=tmp_path,
    )
    assert (ended.status, len(Interrupted.trained)) == ("interrupted", 4)
    with open_run(ended.folder) as run:
        assert len(run.trainings("reference")) == 4
        assert not parse_task_of(run).references
    monkeypatch.setattr(Interrupted, "left", 1000)
    resumed = resume_search(ended.folder, make_evaluator=Interrupted)
    assert resumed.status == "finished"
    whole = searched[0].folder
    with open_run(ended.folder) as run, open_run(whole) as other:
        assert len(run.trainings("reference")) == 6
        assert run.setup == other.setup
        assert [c.objectives for c in run.front()] == [c.objectives for c in other.front()]
        assert check_run(run.folder) == []
