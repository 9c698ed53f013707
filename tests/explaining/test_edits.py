"""Edits and controls are legal, distinct and described."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nas.costs import costs_of
from nas.evaluation.study import cost_context, why_not
from nas.explaining import Bounds, plan_explanation
from nas.genome import Visibility
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.space.rules import load_policy, validate
from nas.store.sources import resolve
from nas.tasks import load_task
from tests.genomes import build
from tests.samples import samples

POLICY = load_policy("score_normalize_aggregate")
IMAGES, RECALL = load_task("vit-cifar10"), load_task("recall")
RICH = build(
    ("scaled_dot_product", "qk"),
    ("softcap", [0], {"cap": 30.0}),
    ("sigmoid", [1]),
    ("gelu", "v"),
    ("gelu", [3]),
    ("weighted_sum", [2, 4]),
    kv_heads="1/2",
)


def planned(genome, task=IMAGES, against="mha"):
    bounds = Bounds(POLICY, task)
    return plan_explanation(genome, bounds, cost_context(task, {}), resolve(against))


def words(plan, part):
    return [one.words for one in plan.changes if one.part == part]


def test_every_part_is_edited_once():
    windowed = replace(RICH, visibility=Visibility(8, 2))
    assert words(planned(windowed), "edits") == [
        "without softcap",
        "without gelu (node 3)",  # without node 4 is the same mechanism
        "uniform in place of sigmoid",
        "softmax in place of sigmoid",
        "softcap cap=50.0 in place of softcap cap=30.0",
        "without W_Q",
        "without W_K",
        "without W_V",
        "without W_O",
        "kv_heads=all in place of kv_heads=1/2",
        "without window of 8",
        "without 2 global tokens",
    ]


def test_edit_adds_a_projection_to_an_unprojected_input():
    assert "with W_K" in words(planned(mechanism("patterns").genome), "edits")
    plan = planned(mechanism("champion_2025").genome)
    assert {"without gelu", "without layer_norm", "with W_K"} <= set(words(plan, "edits"))


@pytest.mark.parametrize(
    "task", [IMAGES, pytest.param(RECALL, marks=pytest.mark.slow)], ids=["images", "recall"]
)
def test_planned_mechanisms_are_legal_and_distinct(task):
    named = [one.genome for one in MECHANISMS.values()]
    for genome in (RICH, *named[::9], *samples("attention_v2", 12)[::6]):
        if why_not(genome, task) or validate(genome, POLICY):
            continue
        plan = planned(genome, task)
        for key, own in plan.mechanisms.items():
            assert not validate(own, POLICY)
            assert not why_not(own, task)
            assert task.resolve(own).key == key
        edited = [one.key for one in plan.changes if one.part == "edits"]
        assert len({plan.source, *edited}) == 1 + len(edited)


def test_controls_are_the_reference_with_similar_costs():
    setting = cost_context(IMAGES, {})
    for name in ("champion_2025", "sqa", "gqa"):
        plan = planned(mechanism(name).genome)
        own = costs_of(setting.resolve(plan.mechanisms[plan.source]), setting)
        controls = [one for one in plan.changes if one.part == "controls"]
        assert controls[0].words == "mha"
        costs = [
            costs_of(setting.resolve(plan.mechanisms[one.key]), setting) for one in controls[1:]
        ]
        for cost in ("macs", "params"):
            assert min(abs(c[cost] / own[cost] - 1) for c in costs) < 0.1
    assert words(planned(mechanism("mha").genome), "controls") == []
    rotated = words(planned(mechanism("sqa").genome, RECALL, "rope:kv_heads=1/4"), "controls")
    assert rotated[0] == "rope:kv_heads=1/4"
    assert all(each.startswith("rope:kv_heads=1/4,") for each in rotated[1:])
