"""The region of interest: limits of objectives, beyond which no mechanism is in a front."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.cli.options import limits
from nas.common.errors import ConfigError, SpaceError
from nas.common.objectives import Metric, Objective, front_costs
from nas.common.pareto import scaled_hypervolume
from nas.common.search_config import SearchConfig
from nas.costs import CostContext
from nas.evaluation.local import LocalEvaluator
from nas.genome.mechanisms import mechanism
from nas.searching.archive import Archive
from nas.searching.driver import resume_search, run_search
from nas.searching.nsga2 import Nsga2
from nas.searching.results import TrialResult
from nas.searching.setup import make_objectives, region_of
from nas.store import candidates, open_run
from nas.tasks import parse_task
from nas.tasks.suite import Reference
from nas.testing.algorithms import OBJECTIVES, SIZES, SPACE, proposer_of
from tests.searching.test_suites import RECALL, Interrupted
from tests.searching.test_suites import SPACE as SMALL

ACCURACY, MACS = OBJECTIVES[:2]
LIMITED = (replace(ACCURACY, limit=0.5), replace(MACS, limit=100.0))
MHA = mechanism("mha").genome


def result(number: int, *costs: float) -> TrialResult:
    key = f"{number:016x}"
    return TrialResult(number, MHA, key, key, costs, known_costs={"params": float(number)})


def test_rows_beyond_a_limit_are_in_no_front_and_no_volume() -> None:
    assert front_costs(LIMITED, {"accuracy": 0.5, "macs": 100.0}) == (-0.5, 100.0)
    assert front_costs(LIMITED, {"accuracy": 0.49, "macs": 1.0}) == (math.inf, math.inf)
    inside, outside = {"accuracy": 0.75, "macs": 50.0}, {"accuracy": 0.9, "macs": 120.0}
    assert scaled_hypervolume(LIMITED, [inside, outside]) == pytest.approx(0.5 * 0.5)


def test_p_is_zero_beyond_a_limit_and_shared_at_it() -> None:
    archive = Archive(LIMITED)
    rng = np.random.default_rng(0)
    rows = [(-0.9, 120.0), (-0.1, 1.0), *((-0.8 - 0.01 * rng.random(), 50.0 + i) for i in range(9))]
    archive.tell([result(i, *row) for i, row in enumerate(rows)])
    known = {e.key: e for e in archive.posterior()}
    costly, bad, cheap = (known[f"{i:016x}"] for i in (0, 1, 2))
    assert (costly.p, costly.is_member, bad.p, bad.is_member) == (0.0, False, 0.0, False)
    assert cheap.is_member
    assert cheap.p == 1.0


def test_nsga2_prefers_candidates_inside_and_then_those_nearest_to_it(kit: Any) -> None:
    algorithm = Nsga2(kit.context(population=4, objectives=LIMITED))
    rows = [(-0.9, 150.0), (-0.9, 110.0), (-0.4, 1.0), (-0.6, 90.0), (-0.7, 95.0)]
    algorithm.tell([result(i, *row) for i, row in enumerate(rows)])
    assert {member.number for member in algorithm.members} == {1, 2, 3, 4}
    rng = np.random.default_rng(0)
    parents = [int(algorithm.propose(rng, 0).parents[0], 16) for _ in range(200)]
    assert parents.count(3) + parents.count(4) > 130


@pytest.mark.parametrize("name", [pytest.param("surrogate", marks=pytest.mark.slow), "nsga2"])
def test_search_proposes_more_inside_with_limits(name: str) -> None:
    limit = float(np.quantile(macs_of_offspring(name, MACS), 0.25))
    inside = [
        np.mean(macs_of_offspring(name, replace(MACS, limit=x)) <= limit) for x in (limit, None)
    ]
    assert inside[0] > inside[1]


def macs_of_offspring(name: str, macs: Objective) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The multiply-adds of 30 proposals after the first ten; more of them are more accurate."""
    proposer, results, found = proposer_of(name, objectives=(ACCURACY, macs)), [], []
    for number in range(40):
        proposal = proposer.propose(number, results)[-1]
        found.append(proposal.costs["macs"])
        trained = (-0.6 - 1e-9 * found[-1], found[-1])
        results.append(TrialResult.of(proposal, [trained]))
    return np.array(found[10:])


def test_limits_are_of_objectives() -> None:
    metric = Metric("accuracy", "fraction", "max", 0.1, 1.0)
    space = SPACE.model_copy(update={"region": {"quality": 0.7, "macs": 1.5}})
    assert region_of(space, [metric]) == {"accuracy": 0.7, "macs": 1.5}
    with pytest.raises(SpaceError, match=r"region: 'params' is no objective; expected some of"):
        region_of(SPACE.model_copy(update={"region": {"params": 1.0}}), [metric])
    with pytest.raises(ConfigError, match=r"region.*macs.*greater than 0"):
        SPACE.asked(None, {"macs": -1.0})
    assert space.asked(["macs"], None).region == {"macs": 1.5}
    assert space.asked(None, {}).region == {}


@pytest.mark.slow
def test_limit_of_a_metric_is_relative_to_reference_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = SMALL.asked(["quality", "macs"], {"quality": 0.5, "macs": 0.9})
    task = parse_task({"kind": "recall", "name": "r", **without_task(RECALL)}, "here")
    config = SearchConfig(population=6, generations=1)
    whole = run_search(
        space, task, config, make_evaluator=LocalEvaluator, root=tmp_path, name="whole"
    )
    with open_run(whole.folder) as run:
        trained = run.trainings("reference")
        scores = {
            n: np.mean([t.evaluation.metrics["accuracy"] for t in trained if t.name == n])
            for n in ("mha", "uniform")
        }
        accuracy, macs = run.setup.objectives
        assert accuracy.limit == pytest.approx((scores["mha"] + scores["uniform"]) / 2)
        known = {c.proposal.name: c for c in candidates(run)}
        assert macs.limit == pytest.approx(0.9 * known["mha"].objectives["macs"])
        assert known["mha"].is_ok
        assert not {"mha", "uniform"} & {c.proposal.name for c in run.front()}
        assert run.front()
    monkeypatch.setattr(Interrupted, "left", 4)
    monkeypatch.setattr(Interrupted, "trained", [])
    ended = run_search(space, task, config, make_evaluator=Interrupted, root=tmp_path, name="part")
    assert ended.status == "interrupted"
    monkeypatch.setattr(Interrupted, "left", 1000)
    resume_search(ended.folder, make_evaluator=Interrupted)
    with open_run(whole.folder) as run, open_run(ended.folder) as other:
        assert len(other.trainings("reference")) == 6
        assert run.setup == other.setup
        assert [c.objectives for c in run.front()] == [c.objectives for c in other.front()]


def without_task(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "task"}


def test_limit_beyond_the_best_value_and_two_limits_are_refused() -> None:
    metric = Metric("accuracy", "fraction", "max", 0.1, 1.0)
    setting = CostContext(SIZES, False, False, {})
    references = {"accuracy": Reference(metric="accuracy", mha=0.9, uniform=0.2)}
    with pytest.raises(SpaceError, match=r"the limit 2 of accuracy is 1.6, beyond the best"):
        make_objectives(("accuracy",), [metric], setting, {"accuracy": 2.0}, references)
    twice = SPACE.model_copy(update={"region": {"quality": 0.7, "accuracy": 0.8}})
    with pytest.raises(SpaceError, match="'accuracy' has two limits"):
        region_of(twice, [metric])
    with pytest.raises(ConfigError, match="'macs' stands twice"):
        limits("macs=1,macs=2")


@pytest.mark.parametrize("number", ["1_2", "inf", "nan", "-1", "0x1", "", "true", "1 2"])
def test_limit_that_is_no_plain_number_is_refused(number: str) -> None:
    with pytest.raises(ConfigError, match="expected NAME=LIMIT, such as quality"):
        limits(f"macs={number}")
