"""Every rewriting rule: the twin in the space, one digest, and one function with its gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch

from nas.compiler import resolve
from nas.genome import Genome, ModelSizes, Visibility
from nas.genome.canonical import canonicalise, digest
from nas.genome.mechanisms import MECHANISMS
from nas.genome.types import infer, is_constant
from nas.space import load_space
from nas.space.rules import load_policy, validate
from tests.samples import samples
from tests.twins import are_twins, plain_block

if TYPE_CHECKING:
    from tests.genomes import Build

SIZES: Final = ModelSizes(32, 8, 2, 9)
SPACES: Final = ("attention_v1", "attention_v2")


def check(old: Genome, new: Genome, sizes: ModelSizes | None = None) -> None:
    """``old`` and ``new`` have one normal form, which is ``new`` as a function."""
    form = canonicalise(old, sizes)
    assert form == canonicalise(new, sizes)
    torch.manual_seed(1)
    assert are_twins(old, form, SIZES.dim, SIZES.heads, SIZES.tokens)


def scored(genome: Build, *middle: tuple[Any, ...], **projections: Any) -> Genome:
    """Dot products, what is said to be done with them in order, and their aggregation."""
    chain = [("scaled_dot_product", "qk")]
    chain += [(op, [len(chain) - 1 + i], *rest) for i, (op, *rest) in enumerate(middle)]
    return genome(*chain, ("weighted_sum", [len(chain) - 1, "v"]), **projections)


@pytest.mark.parametrize("adjust", [(), ("softcap",), ("topk_filter",)])
def test_equal_weights_read_no_scores(genome: Build, adjust: tuple[str, ...]) -> None:
    old = scored(genome, *((op,) for op in adjust), ("uniform",))
    new = genome(("uniform", "v"), ("weighted_sum", [0, "v"]))
    check(old, new)
    form = canonicalise(old)
    assert (form.projections.has_wq, form.projections.has_wk) == (False, False)
    assert not validate(form, load_policy("score_normalize_aggregate"))
    assert not validate(form, load_policy("two_stage"))


@pytest.mark.parametrize("op", ["rope", "linear"])
def test_maps_before_equal_weights_are_removed(genome: Build, op: str) -> None:
    old = genome(
        (op, "q"), ("cosine", [0, "k"]), ("uniform", [1]), ("linear", "v"), ("weighted_sum", [2, 3])
    )
    new = genome(("uniform", "v"), ("linear", "v"), ("weighted_sum", [0, 1]))
    check(old, new)


@pytest.mark.parametrize("heads", ["all", "1/2", "one"])
def test_equal_weights_keep_the_heads_of_their_scores(genome: Build, heads: str) -> None:
    old = scored(genome, ("uniform",), q_heads=heads, kv_heads="1/4")
    before, after = infer(old), infer(canonicalise(old))
    assert before.nodes[-1] == after.nodes[-1]
    check(old, canonicalise(old))


@pytest.mark.parametrize("heads", ["all", "1/4"])
def test_affine_maps_of_a_mean_map_its_values(genome: Build, heads: str) -> None:
    maps = ("linear", "v"), ("linear", [0]), ("uniform", "q"), ("weighted_sum", [2, 1])
    moved = ("uniform", "q"), ("weighted_sum", [0, "v"]), ("linear", [1]), ("linear", [2])
    heads_of = {"q_heads": "1/2", "kv_heads": heads}
    check(genome(*maps, **heads_of), genome(*moved, **heads_of))
    assert canonicalise(genome(*maps, **heads_of)).nodes[-1].op == "linear"


def test_a_gate_of_heads_reads_a_stream_of_any_width(genome: Build) -> None:
    def scanned(gate: str, scan: str) -> Genome:
        flags = {"has_wq": False, "has_wk": False, "has_wv": gate == "v", "kv_heads": "one"}
        return genome(("forget_gate", gate), ("scan", [scan, 0]), raw="shared", **flags)

    form = canonicalise(scanned("v", "k"))
    assert form == canonicalise(scanned("k", "k"))
    assert not form.projections.has_wv


def test_a_score_that_determines_a_width_is_kept(genome: Build) -> None:
    """Its query is as wide as the model because of it, and is read by another part."""
    old = genome(
        ("scaled_dot_product", "qk"),
        ("uniform", [0]),
        ("weighted_sum", [1, "q"]),
        ("add", [2, 2]),
        has_wk=False,
        raw="shared",
        merge="sum",
    )
    assert infer(old).streams["q"].width == "model"
    assert len(canonicalise(old).nodes) == len(old.nodes)


MEAN: Final = (("uniform", "v"), ("weighted_sum", [0, "v"]))
FEATUREWISE: Final = (
    (),
    (("gelu", [1]),),
    (("output_gate", [1]), ("tanh", [2]), ("multiply", [1, 3])),
    (("short_conv", "v"), ("add", [1, 2])),
)


@pytest.mark.parametrize("after", FEATUREWISE)
def test_means_of_whole_tokens_are_means_of_heads(genome: Build, after: Any) -> None:
    plain = genome(*MEAN, *after, has_wv=False)
    check(genome(*MEAN, *after, has_wv=False, raw="shared"), plain)
    projected = genome(*MEAN, *after, merge="sum", kv_heads="one")
    check(projected, genome(*MEAN, *after))
    # A quarter of four heads is one head, at that size only.
    few, sizes = genome(*MEAN, *after, merge="sum", kv_heads="1/4"), ModelSizes(32, 4, 2, 9)
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
def test_operations_on_single_heads_differ(genome: Build, nodes: Any) -> None:
    forms = [genome(*nodes, has_wv=False, raw=raw) for raw in ("slice", "shared")]
    assert digest(forms[0]) != digest(forms[1])


@pytest.mark.parametrize("gate", ["token_gate", "feature_gate"])
def test_scans_of_whole_tokens_are_scans_of_heads(genome: Build, gate: str) -> None:
    nodes = (gate, "v"), ("scan", ["v", 0])
    check(genome(*nodes, has_wv=False, raw="shared"), genome(*nodes, has_wv=False))


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
def test_mechanisms_of_zeros_are_constant(genome: Build, maps: Any) -> None:
    found = genome(*ZERO, *maps)
    assert is_constant(found)
    blocks = plain_block(found, *SIZES[:2])
    x, other = torch.randn(2, 1, SIZES.tokens, SIZES.dim, dtype=torch.float64)
    assert torch.equal(blocks(x), blocks(other))


def test_mechanisms_that_also_read_the_input_are_not_constant(genome: Build) -> None:
    assert not is_constant(genome(*ZERO, ("linear", [2]), ("output_gate", [3])))
    assert not is_constant(genome(*ZERO, ("gelu", [2]), ("add", [3, "v"])))


def test_queries_and_keys_of_one_shape_change_names(genome: Build) -> None:
    rest = (("softmax", [1]), ("weighted_sum", [2, "v"]))
    old = genome(("rope", "k"), ("bilinear", [0, "q"]), *rest)
    check(old, genome(("rope", "q"), ("bilinear", [0, "k"]), *rest))
    unlike = [
        genome(("rope", a), ("bilinear", [0, b]), *rest, kv_heads="1/2") for a, b in ("qk", "kq")
    ]
    assert digest(unlike[0]) != digest(unlike[1])
    mha = MECHANISMS["mha"].genome
    assert canonicalise(mha) == mha


def test_means_beside_queries_and_keys_that_change_names_have_one_form(genome: Build) -> None:
    """The stream that a mean counts is chosen after the names, which are chosen after it."""
    for first, second in ("qk", "kq"):
        old = genome(
            ("distance", "qk"),
            ("uniform", [0]),
            ("weighted_sum", [1, first]),
            ("weighted_sum", [1, "v"]),
            ("add", [3, second]),
            ("gelu", [4]),
            ("add", [2, 5]),
            has_wv=False,
            q_heads="one",
            kv_heads="one",
        )
        form = canonicalise(old)
        assert canonicalise(form) == form
        check(old, form)


def test_parameters_without_effect_are_removed(genome: Build) -> None:
    def gated(**params: Any) -> Genome:
        gates, score = ("token_gate", "k", params), ("gated_product", ["q", "k", 0])
        return genome(gates, score, ("softmax_free", [1]), ("weighted_sum", [2, "v"]))

    assert digest(gated(form="share", root=7)) == digest(gated(form="share"))
    assert digest(gated(root=7)) != digest(gated())


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


def test_windows_of_the_same_reach_have_one_normal_form() -> None:
    mha = MECHANISMS["mha"].genome
    even, odd = (replace(mha, visibility=Visibility(w)) for w in (4, 5))
    assert are_twins_without_past(even, odd)
    assert canonicalise(even, is_causal=False) == canonicalise(odd, is_causal=False)
    for unlike in ({}, {"is_causal": True}, {"sizes": SIZES}):
        assert canonicalise(even, **unlike) != canonicalise(odd, **unlike)
    # As soon as both see all that is earlier, they are one under either mask.
    even, odd = (replace(mha, visibility=Visibility(w)) for w in (12, 13))
    assert canonicalise(even, SIZES) == canonicalise(odd, SIZES)
    assert are_twins(odd, canonicalise(odd, SIZES), *SIZES[:2], SIZES.tokens)


def are_twins_without_past(even: Genome, odd: Genome) -> bool:
    blocks = [plain_block(g, *SIZES[:2]) for g in (even, odd)]
    blocks[1].load_state_dict(blocks[0].state_dict())
    x = torch.randn(1, SIZES.tokens, SIZES.dim, dtype=torch.float64)
    return torch.equal(blocks[0](x), blocks[1](x))


@pytest.mark.parametrize("count", [8, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("space_name", SPACES)
def test_normal_forms_are_final_legal_and_the_same_function(space_name: str, count: int) -> None:
    space = load_space(space_name)
    policy = load_policy(space.policy)
    torch.manual_seed(2)
    for sample in samples(space_name, count):
        for sizes in (None, SIZES):
            form = canonicalise(sample, sizes)
            assert canonicalise(form, sizes) == form, sample
            assert not validate(form, policy), sample
            assert are_twins(sample, form, *SIZES[:2], SIZES.tokens), sample
        assert space.excludes(canonicalise(sample)) is None, sample


def test_shares_that_rotate_as_many_features_are_equal(genome: Build) -> None:
    quarter, half, plain = (
        genome(
            ("rope", "k", params),
            ("scaled_dot_product", ["q", 0]),
            ("softmax", [1]),
            ("weighted_sum", [2, "v"]),
        )
        for params in ({"share": "1/4", "base": 7.0}, {"share": "1/2"}, {})
    )
    check(quarter, half, SIZES)
    wide = SIZES._replace(dim=64)
    assert len({resolve(found, wide).key for found in (quarter, half, plain)}) == 3
