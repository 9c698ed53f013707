"""Shipped spaces contain the mechanisms with which their searches start."""

from __future__ import annotations

from pathlib import Path

import pytest

from nas.common.errors import SpaceError
from nas.genome.mechanisms import mechanism
from nas.space import load_space
from nas.space.rules import load_policy
from nas.space.space import FOLDER, seeds


@pytest.mark.parametrize("name", sorted(path.stem for path in Path(FOLDER).glob("*.yaml")))
def test_a_space_contains_the_mechanisms_with_which_it_starts(name: str) -> None:
    space = load_space(name)
    started = [entry.name for entry in seeds(space, load_policy(space.policy))]
    assert started
    assert set(started) <= set(space.mechanisms)


def test_a_space_may_start_with_a_changed_mechanism() -> None:
    space = load_space("hybrid_causal")
    (retnet, *_) = seeds(space, load_policy(space.policy))
    assert retnet.name == "retnet:every=4,count=3"
    assert retnet.genome == mechanism(retnet.name).genome
    assert retnet.genome.placement.every == 4
    wrong = space.model_copy(update={"mechanisms": ("retnet:evry=4",)})
    with pytest.raises(SpaceError, match=r"hybrid_causal, mechanisms: .*no 'evry' to change"):
        seeds(wrong, load_policy(space.policy))
