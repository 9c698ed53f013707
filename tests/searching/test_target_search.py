"""Searches with a target task: interruptions, lag, workers, the front and its confirmation."""

from __future__ import annotations

from typing import Any

import pytest

from nas.common.errors import ConfigError
from nas.common.objectives import SearchConfig
from nas.evaluation.trainer import LocalEvaluator
from nas.searching.algorithm import MOST_BEYOND
from nas.searching.driver import resume_search, run_search
from nas.searching.setup import target_task
from nas.searching.target_archive import FIRST, SPREAD
from nas.space import load_space
from nas.store import open_run
from nas.tasks import load_task, parse_task

from .conftest import Table
from .driving import SPACE

SETTINGS = SearchConfig("nsga2", population=8, generations=9, seed=4)


@pytest.fixture
def target(task: Any) -> Any:
    """The task with twice as many heads and epochs."""
    return task.model_copy(update={"name": "longer", "heads": 8, "epochs": 2})


@pytest.fixture
def begin(kit: Any, task: Any, target: Any) -> Any:
    def run(
        settings: SearchConfig = SETTINGS, name: str = "run", space: Any = SPACE, **table: Any
    ) -> Any:
        return run_search(
            space,
            task,
            settings,
            target=target,
            make_evaluator=lambda task, data, target: Table(**table),
            root=kit.root,
            name=name,
        )

    return run


def test_search_trains_known_mechanisms_under_the_target_task(begin: Any, kit: Any) -> None:
    ended = begin()
    with open_run(ended.folder) as run:
        proposals, setup = run.proposals(), run.setup
        trained = [proposal for proposal in proposals if proposal.is_trained]
        targets = [proposal for proposal in trained if proposal.is_target]
        assert len({proposal.key for proposal in targets[:SPREAD]}) == SPREAD
        assert min(proposal.number for proposal in targets) >= FIRST
        new = {p.key: p.number for p in trained if p.is_new}
        assert all(new[p.key] < p.number for p in targets)
        records = run.trainings("target")
        assert setup.target is not None
        assert {t.task for t in records} == {setup.target.fingerprint}
        members = run.front()
        assert members
        assert {m.key for m in members} <= {t.key for t in records}
        assert {e.key for e in run.estimates()} <= {t.key for t in records}
        assert (run.folder / "target.yaml").read_text() == setup.target.text


@pytest.mark.parametrize("algorithm", ["nsga2", "surrogate"])
def test_trained_mechanisms_have_costs_near_their_limits(
    begin: Any, kit: Any, algorithm: str
) -> None:
    space = SPACE.model_copy(update={"region": {"macs": 0.6}})
    settings = SearchConfig(algorithm, population=8, generations=6, seed=4)
    with open_run(begin(settings, space=space).folder) as run:
        limit = next(o.limit for o in run.setup.objectives if o.name == "macs")
        trained = [p for p in run.proposals() if p.is_trained and p.name is None]
        assert max(p.costs["macs"] for p in trained) <= MOST_BEYOND * limit
        targets = [p for p in run.proposals() if p.is_target]
        assert targets
        assert max(p.costs["macs"] for p in targets) <= limit


@pytest.mark.slow
@pytest.mark.parametrize(("stop_after", "lag"), [(45, None), (30, 6)])
def test_interrupted_search_has_the_same_record(
    begin: Any, kit: Any, stop_after: int, lag: int | None
) -> None:
    settings = SearchConfig(population=8, generations=7, seed=4, lag=lag)
    begin(settings, "whole", workers=4)
    assert begin(settings, "cut", stop_after=stop_after).status == "interrupted"
    resumed = resume_search(
        kit.root / "cut", make_evaluator=lambda task, data, target: Table(workers=3, order=1)
    )
    assert resumed.status == "finished"
    assert kit.recorded("whole") == kit.recorded("cut")


@pytest.mark.slow
def test_short_task_may_have_a_gate(kit: Any) -> None:
    sizes = {"width": 16, "heads": 2, "depth": 1, "epochs": 1, "validation_examples": 32}
    bytes_ = {"name": "bytes", **sizes, "length": 16, "train_examples": 320}
    # Without learning, accuracy is about 1/16 by chance, so that some candidates miss the gate.
    recall = {"name": "recall", **sizes, "validation_examples": 64, "train_examples": 128}
    gate = {"task": recall, "metric": "accuracy", "at_least": 0.055}
    fields = {"kind": "gated", "name": "gated", "task": bytes_, "gates": {"recall": gate}}
    gated = parse_task(fields, "gated")
    target = gated.main.model_copy(update={"epochs": 2})
    space = load_space("attention_causal").asked(["quality", "macs"], {})
    settings = SearchConfig(population=8, generations=6, seed=1)
    ended = run_search(
        space, gated, settings, target=target, make_evaluator=LocalEvaluator, root=kit.root
    )
    assert ended.status == "finished"
    with open_run(ended.folder) as run:
        assert [o.name for o in run.setup.objectives] == ["bits_per_byte", "macs"]
        assert not run.trainings("reference")
        stopped = {t.key for t in run.trainings("search") if t.evaluation.status == "stopped"}
        targets = {t.key for t in run.trainings("target")}
        assert stopped
        assert targets
        assert not stopped & targets
        shorts = [t.evaluation for t in run.trainings("search") if t.evaluation.is_ok]
        assert all({"bits_per_byte", "recall.accuracy"} <= e.metrics.keys() for e in shorts)
        assert {m.key for m in run.front()} <= targets


def test_target_is_of_the_family_of_the_scored_task() -> None:
    gated = load_task("bytes-and-recall", data="file:book.txt")
    assert target_task("bytes-long", gated) == load_task("bytes-long", data="file:book.txt")
    for short, long in (("text-and-recall", "text-256"), ("vit-cifar10", "vit-cifar10-full")):
        assert target_task(long, load_task(short)).name == long
    with pytest.raises(ConfigError, match="'bytes-and-recall' has gates; expected a task without"):
        target_task("bytes-and-recall", load_task("bytes"))
    with pytest.raises(ConfigError, match="is of the family 'images'; expected one of the run's"):
        target_task("comparison", gated)
    with pytest.raises(ConfigError, match="'bytes' is the task of the search"):
        target_task("bytes", load_task("bytes"))
