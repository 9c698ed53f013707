"""A space enumerated: complete against sampling, each mechanism once, legal, within its limits."""

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
from nas.genome.primitives import get
from nas.space import SearchSpace, load_space
from nas.space.validation import load_policy, validate
from nas.space.variation import Variation

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


@pytest.mark.parametrize("space", [SMALL, load_space("attention_bench")], ids=lambda s: s.name)
def test_enumeration_holds_whatever_sampling_finds(space: SearchSpace) -> None:
    found = dict(small() if space is SMALL else enumerate_space(space, POLICY, SIZES))
    variation, rng = Variation(space, POLICY), np.random.default_rng(0)
    genomes = [variation.sample(rng) for _ in range(600)]
    genomes += [variation.mutate(genome, rng, 3)[0] for genome in genomes[:200]]
    normal = {canonicalise(genome, SIZES) for genome in genomes}
    keys = {resolve(g, SIZES).key for g in normal if space.excludes(g) is None}
    assert len(keys) > 100
    assert keys <= set(found)


def test_each_comes_once_in_normal_form_and_legal() -> None:
    found = small()
    assert len({key for key, _ in found}) == len(found)
    for key, genome in found:
        assert resolve(genome, SIZES).key == key
        assert canonicalise(genome, SIZES) == genome
        assert not validate(genome, POLICY)
        assert SMALL.excludes(genome) is None


def test_a_chain_and_its_flags_are_counted_by_hand() -> None:
    flags = {f"has_w{x}": [True, False] for x in "vo"}
    chain = {"scaled_dot_product": {}, "softmax": {}, "weighted_sum": {}}
    fields = {"name": "chain", "nodes": {"max": 3}, "primitives": chain, "projections": flags}
    found = dict(enumerate_space(SearchSpace.model_validate(fields), POLICY, SIZES))
    # The values are v, by the policy. Queries and keys may change names: (k, q) is (q, k), and
    # (k, k) is (q, q); v is told from them by the values.
    scores = [("q", "k"), ("q", "q"), ("q", "v"), ("v", "q"), ("v", "v")]
    assert len(found) == len(list(product(scores, flags["has_wv"], flags["has_wo"])))
    assert resolve(mechanism("mha").genome, SIZES).key in found


def test_a_causal_space_holds_no_look_ahead() -> None:
    chain = {op: {} for op in ("scaled_dot_product", "softmax", "weighted_sum", "short_conv")}
    fields = {"name": "convolved", "nodes": {"max": 4}, "primitives": chain, "causal": True}
    space = SearchSpace.model_validate(fields)
    found = dict(enumerate_space(space, POLICY, SIZES, is_causal=True))
    nodes = [node for genome in found.values() for node in genome.nodes]
    convolutions = [node for node in nodes if node.op == "short_conv"]
    assert convolutions
    assert all(get(node.op).full(node.param_dict())["causal"] for node in convolutions)
