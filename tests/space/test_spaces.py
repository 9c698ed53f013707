"""Shipped spaces contain the mechanisms with which their searches start; errors of space files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from nas.api.execution import task_of
from nas.common.config import parse_model
from nas.common.errors import ConfigError, SpaceError
from nas.compiler import build_attention
from nas.genome import ALL
from nas.genome.mechanisms import mechanism
from nas.space import SearchSpace, load_space
from nas.space.rules import load_policy, validate
from nas.space.space import FOLDER, seeds
from tests.tensors import draw

NAMES = sorted(path.stem for path in Path(FOLDER).glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_the_task_of_a_space_suits_its_placements(name: str) -> None:
    space = load_space(name)
    task = task_of(space, None, None).main
    assert task.is_causal == space.causal
    assert all(placement.layers(task.depth) for placement in space.placement)


@pytest.mark.parametrize("name", NAMES)
def test_a_space_contains_the_mechanisms_with_which_it_starts(name: str) -> None:
    space = load_space(name)
    started = [entry.name for entry in seeds(space, load_policy(space.policy))]
    assert started
    assert set(started) <= set(space.mechanisms)


@pytest.mark.parametrize("name", ["attention_causal", "hybrid_causal"])
def test_all_starts_know_the_order_of_tokens_where_models_have_no_positions(name: str) -> None:
    space = load_space(name)
    assert task_of(space, None, None).main.positions == "none"
    x = draw(1, 6, 16)
    swapped = x[:, [1, 0, 2, 3, 4, 5]]
    for seed in seeds(space, load_policy(space.policy)):
        others = [] if seed.genome.placement == ALL else [seed.genome.rest()]
        blocks = [build_attention(genome, 16, 4).double() for genome in (seed.genome, *others)]
        outputs = [(block(x, is_causal=True), block(swapped, is_causal=True)) for block in blocks]
        assert not all(torch.allclose(a[:, -1], b[:, -1]) for a, b in outputs), seed.name


def test_a_space_may_start_with_a_changed_mechanism() -> None:
    space = load_space("hybrid_causal")
    (retnet, *_) = seeds(space, load_policy(space.policy))
    assert retnet.name == "retnet:every=4,count=3"
    assert retnet.genome == mechanism(retnet.name).genome
    assert retnet.genome.placement.every == 4
    wrong = space.model_copy(update={"mechanisms": ("retnet:evry=4",)})
    with pytest.raises(SpaceError, match=r"hybrid_causal, mechanisms: .*no 'evry' to change"):
        seeds(wrong, load_policy(space.policy))


def test_the_other_layers_of_hybrids_obey_the_policy() -> None:
    policy = load_policy("published_2025")
    with pytest.raises(SpaceError, match="space hybrid_causal, rest forgetting: "):
        seeds(load_space("hybrid_causal"), policy)
    broken = validate(mechanism("rope:every=2,rest=forgetting").genome, policy)
    assert {violation.rule.partition(" of ")[2] for violation in broken} == {"rest"}


FIELDS = {"name": "s", "nodes": {"max": 8}, "primitives": {"softmax": {}}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"placement": {"every": [0]}}, ".0.every: found int 0; expected greater than or equal"),
        ({"placement": {"every": 2, "count": "x"}}, ".0.count: found str 'x'; expected a valid"),
        ({"placement": 3}, ": found int 3; expected a list"),
        ({"primitives": {"softmax": {"t": [1]}}}, ": softmax has no parameter 't'"),
        ({"primitives": {"sofmax": {}}}, ": there is no primitive 'sofmax' (did you mean"),
    ],
)
def test_one_mistake_is_one_sentence(fields: dict[str, Any], words: str) -> None:
    (name,) = fields
    with pytest.raises(ConfigError) as caught:
        parse_model({**FIELDS, **fields}, SearchSpace, "s.yaml")
    assert str(caught.value).startswith(f"s.yaml, {name}{words}")
    assert "more mistake" not in str(caught.value)
