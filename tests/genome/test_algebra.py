"""Every rewriting rule: the twin in the space, one digest, and one function with its gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch

from nas.compiler import resolve
from nas.genome import MAX_NODES, PLACEMENTS, Genome, ModelSizes, Visibility
from nas.genome.canonical import canonicalise, digest
from nas.genome.mechanisms import MECHANISMS
from nas.genome.signs import is_constant
from nas.genome.types import infer
from nas.space import load_space
from nas.space.validation import load_policy, validate
from tests.samples import samples
from tests.twins import are_twins, plain_block

if TYPE_CHECKING:
    from tests.genomes import Build

SIZES: Final = ModelSizes(32, 8, 2, 9)
SPACES: Final = ("attention_v1", "attention_v2", "quickstart")


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


@pytest.mark.parametrize(
    "adjust", [(), ("softcap",), ("temperature",), ("alibi",), ("topk_filter",)]
)
def test_equal_weights_read_no_scores(genome: Build, adjust: tuple[str, ...]) -> None:
    old = scored(genome, *((op,) for op in adjust), ("uniform",))
    new = genome(("uniform", "v"), ("weighted_sum", [0, "v"]))
    check(old, new)
    form = canonicalise(old)
    assert (form.projections.has_wq, form.projections.has_wk) == (False, False)
    assert not validate(form, load_policy("score_normalize_aggregate"))
    assert not validate(form, load_policy("two_stage"))


@pytest.mark.parametrize("op", ["rope", "layer_norm", "linear", "short_conv"])
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


def test_two_uniform_nodes_become_one(genome: Build) -> None:
    old = genome(
        ("cosine", "qk"),
        ("uniform", [0]),
        ("scaled_dot_product", "qk"),
        ("uniform", [2]),
        ("add", [1, 3]),
        ("weighted_sum", [4, "v"]),
    )
    check(old, genome(("uniform", "v"), ("add", [0, 0]), ("weighted_sum", [1, "v"])))


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


def test_topk_filter_and_softmax_become_topk_softmax(genome: Build) -> None:
    k = {"k": 3}
    check(scored(genome, ("topk_filter", k), ("softmax",)), scored(genome, ("topk_softmax", k)))


@pytest.mark.parametrize(("first", "second"), [(2, 5), (5, 2), (3, 3)])
@pytest.mark.parametrize("normaliser", ["sigmoid", "topk_softmax"])
def test_two_filters_become_the_one_with_smaller_k(
    genome: Build, first: int, second: int, normaliser: str
) -> None:
    least = {"k": min(first, second)}
    if normaliser == "topk_softmax":
        old = scored(genome, ("topk_filter", {"k": first}), (normaliser, {"k": second}))
        check(old, scored(genome, (normaliser, least)))
    else:
        filters = [("topk_filter", {"k": k}) for k in (first, second)]
        check(
            scored(genome, *filters, (normaliser,)),
            scored(genome, ("topk_filter", least), (normaliser,)),
        )


@pytest.mark.parametrize(("first", "second"), [(2, 3), (3, 2), (1, 4)])
def test_filters_agree_on_ties(first: int, second: int) -> None:
    from nas.genome.primitives.sparse import TopkSoftmax, keep_largest

    scores = torch.tensor([[[[3.0, 1.0, 1.0, 1.0, 0.0], [2.0, 2.0, 2.0, 2.0, 2.0]]]])
    twice = keep_largest(keep_largest(scores, None, first), None, second)
    once = keep_largest(scores, None, min(first, second))
    assert torch.equal(twice, once)
    assert torch.equal(once.softmax(-1), TopkSoftmax(k=min(first, second))(scores))


def test_a_top_k_of_all_keys_is_removed(genome: Build) -> None:
    wide = {"k": SIZES.tokens}
    check(scored(genome, ("topk_softmax", wide)), scored(genome, ("softmax",)), SIZES)
    check(scored(genome, ("topk_filter", wide), ("sigmoid",)), scored(genome, ("sigmoid",)), SIZES)
    narrow = scored(genome, ("topk_softmax", {"k": SIZES.tokens - 1}))
    assert resolve(narrow, SIZES).key != resolve(scored(genome, ("softmax",)), SIZES).key


def of_values(genome: Build, *maps: tuple[Any, ...]) -> Genome:
    """Standard attention, and maps of its result: positions count from it."""
    return genome(
        ("relu", "v"),
        ("scaled_dot_product", "qk"),
        ("softmax", [1]),
        ("weighted_sum", [2, 0]),
        *maps,
    )


def test_relu_of_a_non_negative_result_is_removed(genome: Build) -> None:
    check(of_values(genome, ("relu", [3])), of_values(genome))
    check(
        of_values(genome, ("output_gate", [3]), ("relu", [4])),
        of_values(genome, ("output_gate", [3])),
    )
    square, end = ("multiply", "vv"), (("scaled_dot_product", "qk"), ("softmax", [2]))
    check(
        genome(square, ("relu", [0]), *end, ("weighted_sum", [3, 1])),
        genome(square, ("relu", [0]), *end, ("weighted_sum", [3, 0])),
    )
    assert digest(of_values(genome, ("gelu", [3]), ("relu", [4]))) != digest(
        of_values(genome, ("gelu", [3]))
    )


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


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm", "linear", "gated_value", "rope"])
def test_means_through_maps_of_single_heads_differ(genome: Build, op: str) -> None:
    forms = [genome(*MEAN, (op, [1]), has_wv=False, raw=raw) for raw in ("slice", "shared")]
    assert digest(forms[0]) != digest(forms[1])


def test_attention_over_whole_tokens_differs_from_heads(genome: Build) -> None:
    raw = {"has_wq": False, "has_wk": False, "has_wv": False}
    forms = [scored(genome, ("softmax",), raw=r, **raw) for r in ("slice", "shared")]
    assert digest(forms[0]) != digest(forms[1])


SCORES: Final = (("scaled_dot_product", "qk"), ("softmax", [0]))


def test_aggregations_of_doubled_values_are_doubled_aggregations(genome: Build) -> None:
    plain = genome(*SCORES, ("add", "vv"), ("weighted_sum", [1, 2]))
    assert canonicalise(plain).nodes[-1].op == "weighted_sum"
    check(genome(*SCORES, ("weighted_sum", [1, "v"]), ("add", [2, 2])), plain)


def test_sums_of_aggregations_are_aggregations_of_sums(genome: Build) -> None:
    both = (("cosine", "qk"), ("sparsemax", [0]), ("entmax15", [0]))
    check(
        genome(*both, ("weighted_sum", [1, "v"]), ("weighted_sum", [2, "v"]), ("add", [3, 4])),
        genome(*both, ("add", [1, 2]), ("weighted_sum", [3, "v"])),
    )
    check(
        genome(
            *SCORES,
            ("gelu", "v"),
            ("weighted_sum", [1, "v"]),
            ("weighted_sum", [1, 2]),
            ("add", [3, 4]),
        ),
        genome(*SCORES, ("gelu", "v"), ("add", ["v", 2]), ("weighted_sum", [1, 3])),
    )


def test_sums_of_aggregations_with_kernels_are_kept(genome: Build) -> None:
    old = genome(
        ("scaled_dot_product", "qk"),
        ("softmax_free", [0]),
        ("uniform", "v"),
        ("weighted_sum", [1, "v"]),
        ("weighted_sum", [2, "v"]),
        ("add", [3, 4]),
    )
    assert len(canonicalise(old).nodes) == len(old.nodes)
    check(old, old)


@pytest.mark.parametrize("op", ["relu", "rope", "output_gate"])
def test_doubled_results_are_results_of_doubled_operands(genome: Build, op: str) -> None:
    end = (("scaled_dot_product", "qk"), ("softmax", [2]), ("weighted_sum", [3, 1]))
    check(genome((op, "v"), ("add", [0, 0]), *end), genome(("add", "vv"), (op, [0]), *end))


@pytest.mark.parametrize("op", ["gelu", "layer_norm", "linear", "gated_value"])
def test_nonlinear_maps_of_doubled_operands_are_kept(genome: Build, op: str) -> None:
    end = (("scaled_dot_product", "qk"), ("softmax", [2]), ("weighted_sum", [3, 1]))
    apart = genome((op, "v"), ("add", [0, 0]), *end), genome(("add", "vv"), (op, [0]), *end)
    assert digest(apart[0]) != digest(apart[1])


def test_rotations_of_summands_are_rotations_of_sums(genome: Build) -> None:
    end = (("softmax", [3]), ("weighted_sum", [4, "v"]))
    old = genome(("rope", "q"), ("rope", "k"), ("add", [0, 1]), ("bilinear", [2, "k"]), *end)
    end = (("softmax", [2]), ("weighted_sum", [3, "v"]))
    check(old, genome(("add", "qk"), ("rope", [0]), ("bilinear", [1, "k"]), *end))


def test_a_doubled_result_with_further_readers_is_kept(genome: Build) -> None:
    """Moving the sum would make a call more."""
    old = genome(*SCORES, ("weighted_sum", [1, "v"]), ("add", [2, 2]), ("multiply", [2, 3]))
    assert len(canonicalise(old).nodes) == 5
    check(old, old)


ZERO: Final = (("distance", "qk"), ("relu_squared", [0]), ("weighted_sum", [1, "v"]))


@pytest.mark.parametrize(
    "maps",
    [
        [("gelu", [2]), ("multiply", [3, "v"])],
        [("rope", [2]), ("multiply", [3, "v"])],
        [("relu", [2]), ("output_gate", [3])],
        [("gelu", [2]), ("output_gate", [3])],
        [("rms_norm", [2]), ("gated_value", [3]), ("output_gate", [4])],
        [("scaled_dot_product", [2, "k"]), ("relu_squared", [3]), ("weighted_sum", [4, "v"])],
        [("linear", [2]), ("uniform", "v"), ("weighted_sum", [4, 3])],
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


@pytest.mark.parametrize("op", ["gelu", "silu", "tanh", "relu", "rope", "gated_value", "rms_norm"])
def test_a_sum_with_a_map_of_zeros_is_the_other_summand(genome: Build, op: str) -> None:
    values = genome(
        *ZERO,
        (op, [2]),
        *[("cosine", "qk"), ("softmax", [4])],
        ("weighted_sum", [5, "v"]),
        ("add", [3, 6]),
    )
    check(values, genome(("cosine", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"])))


def test_constant_mechanisms_have_one_normal_form(genome: Build) -> None:
    """Squared rectifiers of distances are zero, whatever else is in the mechanism."""
    plain = genome(("distance", "vv"), ("relu_squared", [0]), ("weighted_sum", [1, "v"]))
    for old in (
        genome(("distance", "qk"), ("relu_squared", [0]), ("weighted_sum", [1, "v"])),
        genome(
            ("rope", "q"),
            ("distance", [0, "k"]),
            ("alibi", [1]),
            ("softcap", [2]),
            ("relu_squared", [3]),
            ("weighted_sum", [4, "v"]),
        ),
    ):
        check(old, plain)


def test_zero_weights_are_removed_from_a_sum(genome: Build) -> None:
    old = genome(
        ("distance", "qk"),
        ("relu_squared", [0]),
        ("scaled_dot_product", "qk"),
        ("softmax", [2]),
        ("add", [1, 3]),
        ("weighted_sum", [4, "v"]),
    )
    check(old, scored(genome, ("softmax",)))


def test_scores_of_zero_weights_with_other_readers_are_kept(genome: Build) -> None:
    """What softmax reads is not exchanged with what a squared rectifier makes zero."""
    both = [("distance", "qk"), ("softmax", [0]), ("relu_squared", [0])]
    plain = genome(("distance", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"]))
    check(genome(*both, ("add", [1, 2]), ("weighted_sum", [3, "v"])), plain)
    gated = genome(*both, ("weighted_sum", [1, "v"]), ("weighted_sum", [2, 3]), ("gelu", [4]))
    check(gated, gated)


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


def test_a_key_without_query_is_named_query(genome: Build) -> None:
    end = (("softmax", [0]), ("weighted_sum", [1, "v"]))
    few = {"kv_heads": "1/2"}
    old = genome(("scaled_dot_product", "kk"), *end, has_wq=False, **few)
    assert digest(old) == digest(genome(("scaled_dot_product", "qq"), *end, q_heads="1/2", **few))


def test_parameters_without_effect_are_removed(genome: Build) -> None:
    def qana(**params: Any) -> Genome:
        return genome(("qana", "qk", params), ("softmax", [0]), ("weighted_sum", [1, "v"]))

    assert digest(qana(warmup=7)) == digest(qana())
    assert digest(qana(gate="warmup", warmup=7)) != digest(qana(gate="warmup"))
    skipless = qana(skip=False, init="random")
    form = canonicalise(skipless)
    assert not form.projections.has_wk or not form.projections.has_wq
    check(skipless, form)


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


def test_placements_of_the_same_layers_have_one_normal_form() -> None:
    mha = replace(MECHANISMS["gqa"].genome, placement=PLACEMENTS["alternate"])
    assert canonicalise(mha, SIZES).placement == PLACEMENTS["first"]
    assert canonicalise(mha).placement == PLACEMENTS["alternate"]


def test_ill_typed_genomes_are_not_rewritten(genome: Build) -> None:
    odd = genome(("relu", "v"), ("relu", [0]), ("softmax", [1]), ("weighted_sum", [2, "v"]))
    assert len(canonicalise(odd).nodes) == 4


@pytest.mark.parametrize("space_name", SPACES)
def test_normal_forms_are_final_legal_and_the_same_function(space_name: str) -> None:
    check_samples(space_name, 15)


@pytest.mark.slow
@pytest.mark.parametrize("space_name", SPACES)
def test_two_thousand_normal_forms(space_name: str) -> None:
    check_samples(space_name, 2000)


def check_samples(space_name: str, count: int) -> None:
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


def test_constant_check_is_linear_in_the_number_of_nodes() -> None:
    """Each node reads the one before it twice: 2^n paths, and n calls deep."""
    data = {
        "graph_def": [
            {"op": "distance", "inputs": ["q", "q"]},
            {"op": "relu_squared", "inputs": [0]},
            *({"op": "add", "inputs": [i, i]} for i in range(1, MAX_NODES - 2)),
            {"op": "weighted_sum", "inputs": [MAX_NODES - 2, "v"]},
        ]
    }
    assert is_constant(Genome.from_dict(data))
