"""The region of interest: limits of objectives, beyond which no mechanism is in a front."""

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
from nas.evaluation.trial import Budget, Evaluation, Training
from nas.genome.mechanisms import mechanism
from nas.searching.algorithm import TrialResult
from nas.searching.archive import Archive
from nas.searching.nsga2 import Nsga2
from nas.searching.setup import limit_of, relative_limits
from tests.searching.driving import OBJECTIVES, SPACE, make_context

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
    metric = Metric("accuracy", "fraction", "max", 0.1, 1.0)
    space = SPACE.model_copy(update={"region": {"quality": 0.7, "macs": 1.5}})
    assert relative_limits(space, [metric]) == {"accuracy": 0.7, "macs": 1.5}
    with pytest.raises(SpaceError, match=r"region: 'params' is no objective; expected some of"):
        relative_limits(SPACE.model_copy(update={"region": {"params": 1.0}}), [metric])
    with pytest.raises(ConfigError, match=r"region.*macs.*greater than 0"):
        SPACE.asked(None, {"macs": -1.0})
    assert space.asked(["macs"], None).region == {"macs": 1.5}
    assert space.asked(None, {}).region == {}


def references(name: str, *scores: float) -> list[Training]:
    fields = ((), 0, Budget(1, 2, "float32"), 0.0, 0.0, 0, "here")
    evaluations = [Evaluation("ok", None, {"accuracy": score}, *fields) for score in scores]
    place = ("reference", "0", "toy", name, name)
    return [Training(*place, i, evaluation) for i, evaluation in enumerate(evaluations)]


def test_limit_needs_a_clear_difference_of_the_references() -> None:
    metric = Metric("accuracy", "fraction", "max", 0.1, 1.0)
    same = references("mha", 0.5, 0.6), references("uniform", 0.4, 0.5)
    with pytest.warns(NasWarning, match=r"accuracy is 55\.0 % for mha .* has no limit"):
        assert limit_of(metric, 0.5, "mha", [*same[0], *same[1]]) is None
    apart = references("mha", 0.8, 0.82), references("uniform", 0.4, 0.42)
    assert limit_of(metric, 0.5, "mha", [*apart[0], *apart[1]]) == pytest.approx(0.61)


def test_limit_beyond_the_best_value_is_refused() -> None:
    metric = Metric("accuracy", "fraction", "max", 0.1, 1.0)
    with pytest.raises(SpaceError, match=r"the limit 2 of accuracy is 160.0 %, beyond the best"):
        limit_of(metric, 2.0, "mha", [*references("mha", 0.9), *references("uniform", 0.2)])


@pytest.mark.parametrize("text", ["macs=1,macs=2", "macs=inf", "macs=nan", "macs=-1", "macs=", "1"])
def test_limit_that_is_no_number_for_a_name_is_refused(text: str) -> None:
    with pytest.raises((typer.BadParameter, ConfigError)):
        SPACE.asked(None, {name: float(limit) for name, limit in limits(text).items()})
