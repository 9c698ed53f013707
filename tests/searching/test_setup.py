"""Settings of a search: objectives, frozen copies, and limits beyond which none is in a front."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import typer

from nas.cli.options import limits
from nas.common.errors import ConfigError, NasWarning, SpaceError
from nas.common.objectives import Metric, front_costs
from nas.common.pareto import scaled_hypervolume
from nas.costs import CostContext
from nas.evaluation.trial import Training
from nas.genome import ModelSizes
from nas.genome.mechanisms import mechanism
from nas.searching.algorithm import TrialResult
from nas.searching.archive import Archive
from nas.searching.nsga2 import Nsga2
from nas.searching.setup import limit_of, make_objectives, relative_limits
from nas.space import SearchSpace, load_space
from nas.space.rules import Policy, load_policy
from nas.store.frozen import from_text, frozen_space
from tests.evaluation.conftest import make_evaluation
from tests.searching.driving import OBJECTIVES, SPACE, make_context


@pytest.mark.parametrize("name", ["attention_v2", "attention_causal"])
def test_frozen_copies_become_the_same_space_and_policy(name: str) -> None:
    space = load_space(name)
    policy = load_policy(space.policy)
    space_copy, policy_copy = frozen_space(space)
    assert from_text(space_copy, SearchSpace) == space
    assert from_text(policy_copy, Policy) == policy


METRICS = (
    Metric("perplexity", "nat", "min", 10.0, 1.0),
    Metric("accuracy", "fraction", "max", 0.25, 1.0),
)
TEN_CLASSES = Metric("accuracy", "fraction", "max", 0.1, 1.0)


def named(*names: str) -> tuple[str, ...]:
    data = SPACE.model_dump() | {"objectives": names}
    return tuple(relative_limits(SearchSpace.model_validate(data), METRICS))


def test_objectives_quality_is_the_tasks_first_metric() -> None:
    assert named("quality", "accuracy", "macs") == ("perplexity", "accuracy", "macs")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["accuracy", "mac"], r"no objective 'mac' \(did you mean 'macs'.*quality, perplexity"),
        (["macs", "macs"], "'macs' stands twice"),
        (["quality", "perplexity"], "'perplexity' stands twice"),
    ],
)
def test_objectives_exist_and_stand_once(names: list[str], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        named(*names)


def test_objectives_ends_are_chance_and_twice_standard_attention() -> None:
    setting = CostContext(ModelSizes(32, 4, 2, 16), False, False, {})
    found = make_objectives(
        dict.fromkeys(("accuracy", "macs", "perplexity")), METRICS, setting, "mha"
    )
    mha = 2 * (4 * 16 * 32**2 + 2 * 16**2 * 32)  # two layers: projections, scores and sums
    assert [(o.name, o.direction, o.ideal, o.reference, o.is_metric) for o in found] == [
        ("accuracy", "max", 1.0, 0.25, True),
        ("macs", "min", 0.0, 2.0 * mha, False),
        ("perplexity", "min", 1.0, 10.0, True),
    ]


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
    known = {e.key: e for e in archive.new_posterior()[0]}
    costly, bad, cheap = (known[f"{i:016x}"] for i in (0, 1, 2))
    assert (costly.p, costly.is_member, bad.p, bad.is_member) == (0.0, False, 0.0, False)
    assert cheap.is_member
    assert cheap.p == 1.0


def test_nsga2_prefers_candidates_inside_and_then_those_nearest_to_it() -> None:
    algorithm = Nsga2(make_context(population=4, objectives=LIMITED))
    rows = [(-0.9, 150.0), (-0.9, 110.0), (-0.4, 1.0), (-0.6, 90.0), (-0.7, 95.0)]
    algorithm.tell([result(i, *row) for i, row in enumerate(rows)])
    assert {member.number for member in algorithm.members} == {1, 2, 3, 4}
    rng = np.random.default_rng(0)
    parents = [int(algorithm.propose(rng, 0).parents[0], 16) for _ in range(200)]
    assert parents.count(3) + parents.count(4) > 130


def test_limits_are_of_objectives() -> None:
    space = SPACE.model_copy(update={"region": {"quality": 0.7, "macs": 1.5}})
    assert relative_limits(space, [TEN_CLASSES]) == {"accuracy": 0.7, "macs": 1.5}
    with pytest.raises(SpaceError, match=r"region: 'params' is no objective; expected some of"):
        relative_limits(SPACE.model_copy(update={"region": {"params": 1.0}}), [TEN_CLASSES])
    with pytest.raises(ConfigError, match=r"region.*macs.*greater than 0"):
        SPACE.asked(None, {"macs": -1.0})
    assert space.asked(["macs"], None).region == {"macs": 1.5}
    assert space.asked(None, {}).region == {}


def references(name: str, *scores: float) -> list[Training]:
    evaluations = [make_evaluation(metrics={"accuracy": score}) for score in scores]
    place = ("reference", "0", "toy", name, name)
    return [Training(*place, i, evaluation) for i, evaluation in enumerate(evaluations)]


def test_limit_needs_a_clear_difference_of_the_references() -> None:
    same = references("mha", 0.5, 0.6), references("uniform", 0.4, 0.5)
    with pytest.warns(NasWarning, match=r"accuracy is 55\.0 % for mha .* has no limit"):
        assert limit_of(TEN_CLASSES, 0.5, "mha", [*same[0], *same[1]]) is None
    apart = references("mha", 0.8, 0.82), references("uniform", 0.4, 0.42)
    assert limit_of(TEN_CLASSES, 0.5, "mha", [*apart[0], *apart[1]]) == pytest.approx(0.61)


def test_limit_beyond_the_best_value_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"the limit 2 of accuracy is 160.0 %, beyond the best"):
        limit_of(TEN_CLASSES, 2.0, "mha", [*references("mha", 0.9), *references("uniform", 0.2)])


@pytest.mark.parametrize("text", ["macs=1,macs=2", "macs=inf", "macs=nan", "macs=-1", "macs=", "1"])
def test_limit_that_is_no_number_for_a_name_is_refused(text: str) -> None:
    with pytest.raises((typer.BadParameter, ConfigError)):
        SPACE.asked(None, {name: float(limit) for name, limit in limits(text).items()})
