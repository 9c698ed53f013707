from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from nas.common.errors import SpaceError
from nas.compiler import make_plan
from nas.genome import ALL, Genome, Placement, Rest, Visibility
from nas.genome.canonical import canonicalise, digest
from nas.genome.primitives import get
from nas.genome.types import infer
from nas.space import SearchSpace, load_space
from nas.space.rules import Policy, load_policy, validate
from nas.space.space import seeds
from nas.space.vary import Variation
from tests.genomes import build

SPACES = ("quickstart", "attention_v1", "attention_causal")


# Sees all tokens at once, whatever the mask.
LOOKS_AHEAD = build(
    ("short_conv", "q", {"causal": False}),
    ("convolutional_score", [0, "k"]),
    ("softmax", [1]),
    ("weighted_sum", [2, "v"]),
)


@cache
def setup(name: str, is_causal: bool = False) -> tuple[SearchSpace, Policy, Variation]:
    space = load_space(name)
    policy = load_policy(space.policy)
    return space, policy, Variation(space, policy, is_causal)


def changed(name: str, **changes: Any) -> SearchSpace:
    """A built-in space with other fields."""
    return SearchSpace.model_validate(load_space(name).model_dump() | changes)


def operators(space: SearchSpace) -> Variation:
    return Variation(space, load_policy(space.policy))


def own_policy(*rules: dict[str, str]) -> Policy:
    named = [{"name": f"r{number}"} | rule for number, rule in enumerate(rules)]
    return Policy.model_validate({"name": "own", "rules": named})


def population(name: str, count: int, seed: int, is_causal: bool = False) -> list[Genome]:
    """Samples, then mutants and crossover children of what is there, seeds included."""
    space, policy, variation = setup(name, is_causal)
    rng = np.random.default_rng(seed)
    found = [m.genome for m in seeds(space, policy, is_causal)]
    while len(found) < count:
        a, b = (found[int(rng.integers(len(found)))] for _ in range(2))
        found.append(variation.sample(rng))
        found.append(variation.mutate(a, rng, int(rng.integers(1, 4)))[0])
        found.append(variation.crossover(a, b, rng)[0])
    return found


@pytest.mark.parametrize("count", [200, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SPACES)
def test_results_are_legal_and_in_the_space(name: str, count: int) -> None:
    space, policy, _ = setup(name)
    for genome in population(name, count, seed=1):
        assert not validate(genome, policy), genome.to_json()
        assert not infer(genome).problems, genome.to_json()
        assert space.excludes(canonicalise(genome)) is None, genome.to_json()


def test_the_same_seed_gives_the_same_genomes() -> None:
    first, second, other = (population("attention_v2", 60, seed) for seed in (4, 4, 5))
    assert first == second != other


@pytest.mark.parametrize(
    ("name", "count"),
    [("quickstart", 1_500), pytest.param("attention_v2", 6_000, marks=pytest.mark.slow)],
)
def test_every_choice_of_the_space_occurs(name: str, count: int) -> None:
    space, _, _ = setup(name)
    found = population(name, count, seed=6)
    seen = {(n.op, k, v) for g in found for n in g.nodes for k, v in n.params}
    assert {n.op for g in found for n in g.nodes} == set(space.primitives)
    for op, choices in space.primitives.items():
        for parameter, values in choices.items():
            default = get(op).parameters[parameter].default
            assert all((op, parameter, v) in seen for v in values if v != default), (op, parameter)
    for field, values in space.projections.items():
        assert {getattr(g.projections, field) for g in found} == set(values), field
    assert {g.placement for g in found} == set(space.placement)


def test_mutants_differ_from_their_parent_and_stay_near() -> None:
    _, _, variation = setup("attention_v2")
    rng = np.random.default_rng(9)
    parents = [canonicalise(variation.sample(rng)) for _ in range(200)]
    children = [variation.mutate(p, rng) for p in parents]
    changed = sum(digest(c) != digest(p) for p, (c, _) in zip(parents, children, strict=True))
    assert changed > 140  # the others are their parents on paper
    names = {name for _, name in children}
    assert names >= {"regrow", "rewire", "insert", "remove", "swap", "retune", "project"}


def test_crossover_children_carry_nodes_of_both_parents() -> None:
    _, _, variation = setup("attention_v2")
    rng = np.random.default_rng(10)
    mixed = 0
    for _ in range(200):
        a, b = variation.sample(rng), variation.sample(rng)
        child, _ = variation.crossover(a, b, rng)
        only_a = {n.op for n in a.nodes} - {n.op for n in b.nodes}
        only_b = {n.op for n in b.nodes} - {n.op for n in a.nodes}
        ops = {n.op for n in child.nodes}
        mixed += bool(ops & only_a) and bool(ops & only_b)
    assert mixed > 60


def test_a_custom_policy_is_obeyed() -> None:
    """Values must have passed a layer norm, and nothing may come from k."""
    policy = own_policy(
        {"to": "output", "from": "input", "match": ".* aggregate"},
        {"to": "aggregate.weights", "from": "input", "match": "transform* score adjust* normalize"},
        {"to": "aggregate.values", "from": "input", "match": "gelu* layer_norm"},
        {"to": "output", "none": "input.k"},
        {"to": "output", "some": "input.q", "match": "layer_norm aggregate"},
    )
    space = changed("quickstart", mechanisms=())
    variation, rng = Variation(space, policy), np.random.default_rng(12)
    genome = variation.sample(rng)
    for _ in range(400):
        genome = variation.mutate(genome, rng)[0]
        genome = variation.crossover(genome, variation.sample(rng), rng)[0]
        assert not validate(genome, policy), genome.to_json()


def test_a_space_without_legal_genomes_is_refused() -> None:
    space = load_space("quickstart")
    bare = {k: v for k, v in space.primitives.items() if k not in ("softmax", "sigmoid", "uniform")}
    with pytest.raises(SpaceError, match="normalize"):
        operators(space.model_copy(update={"primitives": bare}))


def test_exactly_the_windows_and_patterns_of_the_space_occur() -> None:
    choices = {"every": [1, 4], "count": [1, 3], "offset": [0, 3], "rest": ["mha", "mha:window=8"]}
    seen = {"window": (None, 8, 16), "global_tokens": (0, 2)}
    space = changed("quickstart", placement=choices, visibility=seen, mechanisms=())
    patterns = {
        Placement(4, c, o, r) for c in (1, 3) for o in (0, 3) for r in (Rest(), Rest(window=8))
    }
    assert len(space.placement) == 9
    assert set(space.placement) == {ALL, *patterns}
    assert SearchSpace.model_validate(space.model_dump(mode="json")) == space
    variation, rng = operators(space), np.random.default_rng(0)
    genomes = [variation.sample(rng) for _ in range(80)]
    genomes += [variation.mutate(g, rng, 3)[0] for g in genomes]
    genomes += [variation.crossover(a, b, rng)[0] for a, b in itertools.pairwise(genomes)]
    assert {g.placement for g in genomes} == set(space.placement)
    windows = {(g.visibility.window, g.visibility.global_tokens) for g in genomes}
    assert windows == set(itertools.product(*seen.values()))
    for genome in genomes:
        assert space.excludes(canonicalise(genome)) is None
    without = changed("quickstart", placement=choices, mechanisms=())
    assert without.excludes(replace(genomes[0], visibility=Visibility(8)))
    other = replace(genomes[0], placement=Placement(5))
    assert "has placement '1 of every 5 layers'; the space has 'all', " in str(
        space.excludes(other)
    )


@pytest.mark.parametrize("count", [300, pytest.param(2_500, marks=pytest.mark.slow)])
def test_causal_variation_yields_only_causal_genomes(count: int) -> None:
    found = population("attention_v2", count, seed=20, is_causal=True)
    unsafe = [g for g in dict.fromkeys(found) if make_plan(g).unsafe]
    assert not unsafe, unsafe[0].to_json()
    convolutions = [dict(n.params) for g in found for n in g.nodes if n.op == "short_conv"]
    assert not any("causal" in params for params in convolutions), "causal by default"
    assert {params.get("kernel", 3) for params in convolutions} == {3, 5}, "with every width"
    free = population("attention_v2", count, seed=20)
    assert any(make_plan(g).unsafe for g in free), "or the space has nothing to leave out"


def test_non_causal_parents_have_causal_children() -> None:
    space, policy, variation = setup("attention_v2", is_causal=True)
    rng = np.random.default_rng(22)
    assert not validate(LOOKS_AHEAD, policy)
    assert space.excludes(LOOKS_AHEAD) is None
    assert "later tokens" in (variation.space.excludes(LOOKS_AHEAD) or "")
    other = variation.sample(rng)
    children = [variation.mutate(LOOKS_AHEAD, rng)[0] for _ in range(30)]
    children += [variation.crossover(LOOKS_AHEAD, other, rng)[0] for _ in range(30)]
    children += [variation.crossover(other, LOOKS_AHEAD, rng)[0] for _ in range(30)]
    assert not any(make_plan(g).unsafe for g in children)
