"""Settings and objectives of a search, and frozen copies of space and policy."""

from __future__ import annotations

import pytest

from nas.common.errors import SpaceError
from nas.common.objectives import Metric
from nas.costs import CostContext
from nas.genome import ModelSizes
from nas.searching.setup import make_objectives, relative_limits
from nas.space import SearchSpace, load_space
from nas.space.rules import Policy, load_policy
from nas.store.frozen import from_text, frozen_space
from tests.searching.driving import SPACE


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
