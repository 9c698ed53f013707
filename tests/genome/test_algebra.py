"""Every rewriting rule: the twin in the space, one digest, and one function with its gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
import torch

from benchmarks.duplicates import renumbered
from nas.compiler import resolve
from nas.genome import Genome, ModelSizes, Visibility
from nas.genome.canonical import canonicalise, digest
from nas.genome.mechanisms import MECHANISMS
from nas.genome.types import is_constant
from nas.space import load_space
from nas.space.rules import load_policy, validate
from tests.genomes import build
from tests.samples import samples
from tests.twins import are_twins, plain_block

SIZES: Final = ModelSizes(32, 8, 2, 9)
SPACES: Final = ("attention_v1", "attention_v2")


def check(old: Genome, new: Genome, sizes: ModelSizes | None = None) -> None:
    """``old`` and ``new`` have one normal form, which is ``new`` as a function."""
    form = canonicalise(old, sizes)
    assert form == canonicalise(new, sizes)
    torch.manual_seed(1)
    assert are_twins(old, form, SIZES.dim, SIZES.heads, SIZES.tokens)


def scored(*middle: tuple[Any, ...], **projections: Any) -> Genome:
    """Dot products, what is said to be done with them in order, and their aggregation."""
    chain = [("scaled_dot_product", "qk")]
    chain += [(op, [len(chain) - 1 + i], *rest) for i, (op, *rest) in enumerate(middle)]
    return build(*chain, ("weighted_sum", [len(chain) - 1, "v"]), **projections)


@pytest.mark.parametrize("adjust", [(), ("softcap",), ("topk_filter",)])
def test_equal_weights_read_no_scores(adjust: tuple[str, ...]) -> None:
    old = scored(*((op,) for op in adjust), ("uniform",))
    new = build(("uniform", "v"), ("weighted_sum", [0, "v"]))
    check(old, new)
    form = canonicalise(old)
    assert (form.projections.has_wq, form.projections.has_wk) == (False, False)
    assert not validate(form, load_policy("score_normalize_aggregate"))
    assert not validate(form, load_policy("two_stage"))


@pytest.mark.parametrize("op", ["rope", "linear"])
def test_maps_before_equal_weights_are_removed(op: str) -> None:
    old = build(
        (op, "q"), ("cosine", [0, "k"]), ("uniform", [1]), ("linear", "v"), ("weighted_sum", [2, 3])
    )
    new = build(("uniform", "v"), ("linear", "v"), ("weighted_sum", [0, 1]))
    check(old, new)


@pytest.mark.parametrize("heads", ["all", "1/4"])
def test_affine_maps_of_a_mean_map_its_values(heads: str) -> None:
    maps = ("linear", "v"), ("linear", [0]), ("uniform", "q"), ("weighted_sum", [2, 1])
    moved = ("uniform", "q"), ("weighted_sum", [0, "v"]), ("linear", [1]), ("linear", [2])
    heads_of = {"q_heads": "1/2", "kv_heads": heads}
    check(build(*maps, **heads_of), build(*moved, **heads_of))
    assert canonicalise(build(*maps, **heads_of)).nodes[-1].op == "linear"


MEAN: Final = (("uniform", "v"), ("weighted_sum", [0, "v"]))
FEATUREWISE: Final = (
    (),
    (("gelu", [1]),),
    (("output_gate", [1]), ("tanh", [2]), ("multiply", [1, 3])),
    (("short_conv", "v"), ("add", [1, 2])),
)


@pytest.mark.parametrize("after", FEATUREWISE)
def test_means_of_whole_tokens_are_means_of_heads(after: Any) -> None:
    plain = build(*MEAN, *after, has_wv=False)
    check(build(*MEAN, *after, has_wv=False, raw="shared"), plain)
    projected = build(*MEAN, *after, merge="sum", kv_heads="one")
    check(projected, build(*MEAN, *after))
    # A quarter of four heads is one head, at that size only.
    few, sizes = build(*MEAN, *after, merge="sum", kv_heads="1/4"), ModelSizes(32, 4, 2, 9)
    assert resolve(few, sizes).key == resolve(projected, sizes).key
    assert digest(few) != digest(projected)


@pytest.mark.parametrize(
    "nodes",
    [
        (*MEAN, ("layer_norm", [1])),
        (*MEAN, ("linear", [1])),
        (*MEAN, ("rope", [1])),
        (*MEAN, ("output_gate", [1], {"per": "head"})),
        (("forget_gate", "v"), ("scan", ["v", 0])),
        (("constant_gate", "v"), ("scan", ["v", 0])),
        (("feature_gate", "v", {"form": "exponential"}), ("scan", ["v", 0])),
    ],
)
def test_operations_on_single_heads_differ(nodes: Any) -> None:
    forms = [build(*nodes, has_wv=False, raw=raw) for raw in ("slice", "shared")]
    assert digest(forms[0]) != digest(forms[1])


ZERO: Final = (("distance", "qk"), ("relu_squared", [0]), ("weighted_sum", [1, "v"]))


@pytest.mark.parametrize(
    "maps",
    [
        [],
        [("rms_norm", [2]), ("gelu", [3])],
        [("relu", [2]), ("output_gate", [3]), ("multiply", [4, "v"])],
        [("scaled_dot_product", [2, "k"]), ("relu_squared", [3]), ("weighted_sum", [4, "v"])],
    ],
)
def test_mechanisms_of_zeros_are_constant(maps: Any) -> None:
    found = build(*ZERO, *maps)
    assert is_constant(found)
    blocks = plain_block(found, *SIZES[:2])
    x, other = torch.randn(2, 1, SIZES.tokens, SIZES.dim, dtype=torch.float64)
    assert torch.equal(blocks(x), blocks(other))


def test_mechanisms_that_also_read_the_input_are_not_constant() -> None:
    assert not is_constant(build(*ZERO, ("linear", [2]), ("output_gate", [3])))
    assert not is_constant(build(*ZERO, ("gelu", [2]), ("add", [3, "v"])))


def test_queries_and_keys_of_one_shape_change_names() -> None:
    rest = (("softmax", [1]), ("weighted_sum", [2, "v"]))
    old = build(("rope", "k"), ("bilinear", [0, "q"]), *rest)
    check(old, build(("rope", "q"), ("bilinear", [0, "k"]), *rest))
    unlike = [
        build(("rope", a), ("bilinear", [0, b]), *rest, kv_heads="1/2") for a, b in ("qk", "kq")
    ]
    assert digest(unlike[0]) != digest(unlike[1])
    mha = MECHANISMS["mha"].genome
    assert canonicalise(mha) == mha


@pytest.mark.parametrize(
    ("seen", "is_causal", "is_none"),
    [
        (Visibility(16), None, True),
        (Visibility(15), None, False),  # reaches 7 to either side
        (Visibility(15), True, True),
        (Visibility(9), True, True),
        (Visibility(8), True, False),
        (Visibility(2, 9), None, True),
        (Visibility(1, 8), None, True),
        (Visibility(1, 7), None, False),
    ],
)
def test_a_window_that_covers_the_sequence_is_removed(
    seen: Visibility, is_causal: bool | None, is_none: bool
) -> None:
    mha = MECHANISMS["mha"].genome
    form = canonicalise(replace(mha, visibility=seen), SIZES, is_causal=is_causal)
    assert (form.visibility == Visibility()) == is_none
    if is_none and is_causal is None:
        assert are_twins(replace(mha, visibility=seen), form, *SIZES[:2], SIZES.tokens)


@pytest.mark.parametrize("count", [8, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("space_name", SPACES)
def test_normal_forms_are_final_legal_and_the_same_function(space_name: str, count: int) -> None:
    """Whatever the order of the nodes."""
    space, rng = load_space(space_name), np.random.default_rng(6)
    policy = load_policy(space.policy)
    torch.manual_seed(2)
    for sample in samples(space_name, count):
        for sizes in (None, SIZES):
            form = canonicalise(sample, sizes)
            assert canonicalise(form, sizes) == form, sample
            assert not validate(form, policy), sample
            assert are_twins(sample, form, *SIZES[:2], SIZES.tokens), sample
        assert space.excludes(canonicalise(sample)) is None, sample
        assert digest(renumbered(sample, rng)) == digest(sample)
