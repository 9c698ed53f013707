"""Enumeration of a space: complete, without duplicates, legal, within its limits."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

from benchmarks.enumerating import enumerate_space
from nas.compiler import resolve
from nas.genome import Genome, ModelSizes
from nas.genome.canonical import canonicalise
from nas.genome.mechanisms import mechanism
from nas.space import SearchSpace, load_space
from nas.space.rules import load_policy, validate
from nas.space.vary import Variation

SIZES = ModelSizes(64, 4, 2, 65)
POLICY = load_policy("score_normalize_aggregate")
# With a learned operation, so that one node read twice differs from two nodes.
SMALL = SearchSpace.model_validate(
    {
        "name": "small",
        "nodes": {"max": 4},
        "primitives": {
            "scaled_dot_product": {},
            "softmax": {},
            "uniform": {},
            "weighted_sum": {},
            "linear": {},
            "add": {},
            "topk_filter": {"k": [8, 16]},
        },
        "projections": {"kv_heads": ["all", "one"]},
        "visibility": {"window": [None, 16]},
        "placement": ["all", "first"],
    }
)


@cache
def small() -> list[tuple[str, Genome]]:
    return list(enumerate_space(SMALL, POLICY, SIZES))


@pytest.mark.slow
@pytest.mark.parametrize("space", [SMALL, load_space("attention_bench")], ids=lambda s: s.name)
def test_enumeration_contains_all_samples(space: SearchSpace) -> None:
    enumerated = dict(small() if space is SMALL else enumerate_space(space, POLICY, SIZES))
    variation, rng = Variation(space, POLICY), np.random.default_rng(0)
    genomes = [variation.sample(rng) for _ in range(300)]
    genomes += [variation.mutate(genome, rng, 3)[0] for genome in genomes[:100]]
    normal = {canonicalise(genome, SIZES) for genome in genomes}
    keys = {resolve(g, SIZES).key for g in normal if space.excludes(g) is None}
    assert len(keys) > 60
    assert keys <= set(enumerated)


@pytest.mark.slow
def test_mechanisms_are_distinct_canonical_and_legal() -> None:
    mechanisms = small()
    assert len({key for key, _ in mechanisms}) == len(mechanisms)
    for key, genome in mechanisms:
        assert resolve(genome, SIZES).key == key
        assert canonicalise(genome, SIZES) == genome
        assert not validate(genome, POLICY)
        assert SMALL.excludes(genome) is None


def test_each_hybrid_is_enumerated_once() -> None:
    """At depth two, with mha or one key head in layer 0, layer 1 or both, and two fillers."""
    projections = {"kv_heads": ["all", "one"]}
    patterns = {"every": [1, 2, 4], "offset": [0, 1, 3], "rest": ["mha", "mha:window=4"]}
    chain = {"scaled_dot_product": {}, "softmax": {}, "weighted_sum": {}}
    space = SearchSpace.model_validate(
        {
            "name": "hybrids",
            "nodes": {"max": 3},
            "primitives": chain,
            "projections": projections,
            "placement": patterns,
        }
    )
    found = enumerate_space(space, POLICY, SIZES._replace(depth=2))
    hybrids = [g for _, g in found if [n.inputs for n in g.nodes] == [("q", "k"), (0,), (1, "v")]]
    first, second = "layer 0", "1 of every 2 layers, offset 1"
    near = [f"{layers}, rest mha:window=4" for layers in (first, second)]
    expected = {
        *product(["all"], ["all", *near]),  # mha with mha in the other layer is mha
        *product(["one"], ["all", "first", second, *near]),
    }
    assert {(g.projections.kv_heads, str(g.placement)) for g in hybrids} == expected
    assert len(hybrids) == len(expected)


def test_number_of_chains_with_flags_equals_hand_count() -> None:
    flags = {f"has_w{x}": [True, False] for x in "vo"}
    chain = {"scaled_dot_product": {}, "softmax": {}, "weighted_sum": {}}
    fields = {"name": "chain", "nodes": {"max": 3}, "primitives": chain, "projections": flags}
    genomes = dict(enumerate_space(SearchSpace.model_validate(fields), POLICY, SIZES))
    # By the policy the values are v. Queries and keys are interchangeable: (k, q) equals (q, k),
    # and (k, k) equals (q, q); v differs from them because it is also the values.
    scores = [("q", "k"), ("q", "q"), ("q", "v"), ("v", "q"), ("v", "v")]
    assert len(genomes) == len(list(product(scores, flags["has_wv"], flags["has_wo"])))
    assert resolve(mechanism("mha").genome, SIZES).key in genomes
