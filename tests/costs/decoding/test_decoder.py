"""Decoding with a cache: outputs of the causal forward pass, and caches of the counted size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from nas.common.errors import GenomeError
from nas.compiler import build_attention, make_plan
from nas.costs import CostContext, costs_of
from nas.costs.decoding import Decoder
from nas.costs.decoding.memory import BYTES_PER_NUMBER, kv_cache_bytes_per_token
from nas.genome import Genome, ModelSizes, Placement, Rest, Visibility
from nas.genome.mechanisms import MECHANISMS
from tests.compiler.test_compiler import both, random_genomes

if TYPE_CHECKING:
    Build = Callable[..., Genome]


DIM, HEADS = 32, 8


def check_rows(
    genome: Genome, parts: tuple[int, ...] = (1,) * 9, context: int | None = None
) -> Decoder:
    """Step through a sequence, with both back ends; returns the decoder at its end."""
    for block in both(genome, DIM, HEADS):
        block.eval()  # a gate that warms up counts passes in training
        x = torch.randn(2, sum(parts), DIM, dtype=torch.float64)
        decoder = Decoder(block, context)
        rows = torch.cat([decoder.step(part) for part in x.split(parts, dim=1)], dim=1)
        torch.testing.assert_close(rows, block(x, is_causal=True), rtol=1e-9, atol=1e-9)
        assert decoder.length == sum(parts)
    return decoder


def check_cost(genome: Genome, tokens: int) -> Decoder:
    """Decode so many tokens; the cache then has the size that the cost states."""
    decoder = check_rows(genome, (tokens - 2, 1, 1), context=tokens)
    charged = kv_cache_bytes_per_token(make_plan(genome), ModelSizes(DIM, HEADS, 1, tokens))
    states = (tensor for state in decoder.states.values() for tensor in state)
    held = sum(kept[0].numel() for kept in (*decoder.cache.values(), *states))
    assert BYTES_PER_NUMBER * held == round(charged * tokens, 6), genome
    return decoder


@pytest.mark.parametrize("rope", [False, True])
@pytest.mark.parametrize("kv_heads", ["all", "1/4"])
@pytest.mark.parametrize("parts", [(1,) * 9, (5, 1, 3)])
def test_qana_decodes_with_rotations_groups_and_a_prompt(
    genome: Build, rope: bool, kv_heads: str, parts: tuple[int, ...]
) -> None:
    nodes = (("qana", "qk", {"rope": rope}), ("softmax", [0]), ("weighted_sum", [1, "v"]))
    check_rows(genome(*nodes, kv_heads=kv_heads), parts)


@pytest.mark.parametrize("normaliser", ["softmax", "sigmoid", "softmax_free", "uniform"])
@pytest.mark.parametrize("seen", [Visibility(), Visibility(1), Visibility(4), Visibility(4, 2)])
def test_biases_of_keys_and_distances_decode(
    genome: Build, normaliser: str, seen: Visibility
) -> None:
    found = genome(
        ("scaled_dot_product", "qk"),
        ("key_bias", [0, "v"]),
        ("alibi", [1]),
        (normaliser, [2]),
        ("weighted_sum", [3, "v"]),
    )
    check_rows(replace(found, visibility=seen), (3, 1, 5))


def test_two_stage_attention_caches_its_first_result(genome: Build) -> None:
    twice = genome(
        ("scaled_dot_product", "qk"),
        ("softmax", [0]),
        ("weighted_sum", [1, "v"]),
        ("scaled_dot_product", ["q", 2]),
        ("softmax", [3]),
        ("weighted_sum", [4, 2]),
    )
    assert "tokens_2" in check_rows(twice).cache


@pytest.mark.parametrize("seen", [Visibility(1), Visibility(3), Visibility(3, 2)])
def test_window_drops_rows_and_keeps_positions(genome: Build, seen: Visibility) -> None:
    found = genome(
        ("rope", "k"),
        ("qana", ["q", 0], {"rope": True}),
        ("alibi", [1]),
        ("softmax", [2]),
        ("gelu", "v"),
        ("rope", [4]),
        ("weighted_sum", [3, 5]),
    )
    found = replace(found, visibility=seen)
    for parts in ((1,) * 9, (4, 1, 1, 3)):
        decoder = check_rows(found, parts)
        held = (seen.window or 0) + seen.global_tokens
        assert {kept.shape[-2] for kept in decoder.cache.values()} == {held}
    check_cost(found, 12)
    check_cost(found, 4)


@pytest.mark.parametrize("seen", [Visibility(), Visibility(3), Visibility(3, 2)])
def test_keys_computed_from_values_are_recomputed(genome: Build, seen: Visibility) -> None:
    found = genome(
        ("rope", "q"),
        ("rope", "v"),
        ("scaled_dot_product", [0, 1]),
        ("softmax", [2]),
        ("weighted_sum", [3, "v"]),
    )
    found = replace(found, visibility=seen)
    assert check_rows(found).cache.keys() == {"v"}
    check_cost(found, 9)


LINEAR = (
    (("scaled_dot_product", "qk"),),
    (("bilinear", "qk"), ("temperature", [0])),
    (("cosine", "qk"), ("key_bias", [0, "v"]), ("temperature", [1])),
    (("cosine", "qk"), ("key_bias", [0, "k"]), ("scaled_dot_product", "qv"), ("add", [1, 2])),
    (("scaled_dot_product", "qk"), ("bilinear", "kq"), ("add", [0, 1]), ("key_bias", [2, "k"])),
    (("rope", "q"), ("short_conv", "k"), ("scaled_dot_product", [0, 1])),
)


@pytest.mark.parametrize("around", [{}, {"kv_heads": "1/4"}, {"has_wv": False, "raw": "shared"}])
@pytest.mark.parametrize("normaliser", [("ratio", {}), ("softmax_free", {"divide": False})])
def test_sums_without_a_division_decode_from_sums(
    genome: Build, normaliser: tuple[str, object], around: dict[str, object]
) -> None:
    op, params = normaliser
    found = genome(
        ("elu_plus_one", "q"),
        ("elu_plus_one", "k"),
        ("scaled_dot_product", [0, 1]),
        (op, [2], params),
        ("weighted_sum", [3, "v"]),
        **around,
    )
    assert any(name.startswith("sums") for name in check_rows(found).cache)
    check_rows(found, (150, 1, 2))
    for tokens in (3, 300):
        check_cost(found, tokens)


@pytest.mark.parametrize("op", ["ratio", "softmax_sink", "softpick", "stick_breaking"])
@pytest.mark.parametrize("seen", [Visibility(), Visibility(3, 2)])
def test_other_normalisers_decode(genome: Build, op: str, seen: Visibility) -> None:
    found = genome(("scaled_dot_product", "qk"), (op, [0]), ("weighted_sum", [1, "v"]))
    check_rows(replace(found, visibility=seen), (3, 1, 5))


@pytest.mark.parametrize("scores", LINEAR, ids=lambda s: "-".join(op for op, _ in s))
@pytest.mark.parametrize(
    "around", [{}, {"kv_heads": "1/4"}, {"has_wk": False, "has_wv": False, "raw": "shared"}]
)
def test_linear_attention_decodes_from_sums(
    genome: Build, scores: tuple[tuple[str, object], ...], around: dict[str, object]
) -> None:
    last = len(scores)
    nodes = (*scores, ("softmax_free", [last - 1]), ("weighted_sum", [last, "v"]))
    found = genome(*nodes, **around)
    decoder = check_rows(found)
    assert any(name.startswith("sums") for name in decoder.cache)
    check_rows(found, (150, 1, 2))
    for tokens in (3, 300):
        check_cost(found, tokens)


def test_sums_and_rows_that_share_a_score(genome: Build) -> None:
    """Softmax reads the keys, another call their sums; rows alone are cached."""
    found = genome(
        ("scaled_dot_product", "qk"),
        ("softmax_free", [0]),
        ("weighted_sum", [1, "v"]),
        ("softmax", [0]),
        ("weighted_sum", [3, 2]),
    )
    check_cost(found, 200)


def test_convolutions_cache_their_last_inputs(genome: Build) -> None:
    found = genome(
        ("short_conv", "q", {"kernel": 5}),
        ("short_conv", "k"),
        ("gelu", [1]),
        ("scaled_dot_product", [0, 2]),
        ("softmax", [3]),
        ("weighted_sum", [4, 1]),
        ("short_conv", [5], {"kernel": 4}),
    )
    for parts in ((1,) * 9, (2, 5, 1, 1)):
        states = check_rows(found, parts).states
        assert sorted(inputs.shape[-2] for (inputs,) in states.values()) == [2, 3, 4]
    for tokens in (3, 9):
        check_cost(found, tokens)
    check_cost(replace(found, visibility=Visibility(3, 1)), 9)


def test_random_genomes_decode_or_see_later_tokens() -> None:
    decoded = 0
    for genome in random_genomes("attention_v2", 60, seed=9):
        if make_plan(genome).unsafe:
            with pytest.raises(GenomeError, match="reads later tokens"):
                Decoder(both(genome, DIM, HEADS)[0])
        else:
            check_rows(genome, (3, 1, 1))
            decoded += 1
    assert decoded > 20


def test_every_sample_of_the_causal_space_decodes() -> None:
    found = [make_plan(genome).genome for genome in random_genomes("attention_causal", 200, seed=3)]
    distinct = list(dict.fromkeys(found))
    assert len(distinct) > 150
    assert any(node.op == "short_conv" for genome in distinct for node in genome.nodes)
    for number, genome in enumerate(distinct):
        check_cost(genome, (5, 9, 40)[number % 3])


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("tokens", [4, 40])
def test_named_mechanism_decodes_with_the_counted_cache(name: str, tokens: int) -> None:
    check_cost(MECHANISMS[name].genome, tokens)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_named_mechanism_decodes_4096_tokens_one_by_one(name: str) -> None:
    """The cache has the size that is charged, from the first token to the last."""
    torch.manual_seed(0)
    sizes, genome = ModelSizes(32, 4, 1, 4096), MECHANISMS[name].genome
    block = build_attention(genome, sizes.dim, sizes.heads).double().eval()
    x = torch.randn(1, sizes.tokens, sizes.dim, dtype=torch.float64)
    charged = sizes.tokens * kv_cache_bytes_per_token(make_plan(genome), sizes)
    decoder, rows = Decoder(block, sizes.tokens), []
    with torch.no_grad():
        for token in x.split(1, dim=1):
            rows.append(decoder.step(token))
            states = (tensor for state in decoder.states.values() for tensor in state)
            held = sum(kept.numel() for kept in (*decoder.cache.values(), *states))
            assert BYTES_PER_NUMBER * held <= round(charged)
        whole = block(x, is_causal=True)
    assert BYTES_PER_NUMBER * held == round(charged)
    torch.testing.assert_close(torch.cat(rows, dim=1), whole, rtol=1e-8, atol=1e-8)


def test_caches_of_all_layers_of_a_hybrid_have_the_stated_size(genome: Build) -> None:
    """Running sums in three layers of four, the last six keys and values in the fourth."""
    linear = genome(("scaled_dot_product", "qk"), ("softmax_free", [0]), ("weighted_sum", [1, "v"]))
    hybrid = replace(linear, placement=Placement(every=4, count=3, rest=Rest(window=5)))
    context = CostContext(ModelSizes(DIM, HEADS, 8, 40), is_causal=True)
    resolved = context.resolve(hybrid)
    layers = resolved.genome.placement.layers(8)
    held = 0
    for layer in range(8):
        block = build_attention(hybrid if layer in layers else hybrid.rest(), DIM, HEADS)
        decoder = Decoder(block.eval(), context=40)
        decoder.step(torch.randn(1, 40, DIM))
        held += sum(kept.numel() for kept in decoder.cache.values())
    name = "kv_cache_bytes_per_token"
    assert costs_of(resolved, context, [name])[name] * 40 == BYTES_PER_NUMBER * held
    assert held == 6 * DIM * DIM // HEADS + 2 * 2 * 5 * DIM


def test_reset_clears_the_cache_and_another_batch_needs_it() -> None:
    block = both(MECHANISMS["mha"].genome, 32, 8)[0]
    decoder = Decoder(block)
    x = torch.randn(2, 3, 32, dtype=torch.float64)
    first: Tensor = decoder.step(x)
    with pytest.raises(ValueError, match="3 sequences after 2"):
        decoder.step(torch.randn(3, 1, 32, dtype=torch.float64))
    decoder.reset()
    assert torch.equal(decoder.step(x), first)


def test_failed_step_changes_nothing() -> None:
    block = both(MECHANISMS["mha"].genome, 32, 8)[0]
    x = torch.randn(2, 4, 32, dtype=torch.float64)
    decoder = Decoder(block)
    decoder.step(x[:, :3])
    with pytest.raises(RuntimeError):
        decoder.step(x[:, 3:, :16])
    torch.testing.assert_close(decoder.step(x[:, 3:]), block(x, is_causal=True)[:, 3:])


def test_other_modules_cannot_be_decoded() -> None:
    with pytest.raises(GenomeError, match="Linear is no block that can be decoded"):
        Decoder(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("context", [None, 500])
def test_buffers_are_little_larger_than_the_cache(context: int | None) -> None:
    """Buffers have capacity for an eighth more tokens, but not for more than the context."""
    block = build_attention(MECHANISMS["mha"].genome, DIM, HEADS).eval()
    decoder = Decoder(block, context)
    for _ in range(50):
        decoder.step(torch.randn(1, 10, DIM))
        held = sum(kept.numel() for kept in decoder.cache.values())
        stored = sum(kept.untyped_storage().nbytes() // 4 for kept in decoder.cache.values())
        assert stored <= max(1.125 * held, held + 16 * 2 * DIM)
    assert context is None or stored == held
