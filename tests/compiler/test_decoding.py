"""Decoding with a cache: every step equals the full forward's row, and keeps what is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from nas.compiler import make_plan
from nas.compiler.decoding import Decoder
from nas.costs import attention_cost
from nas.errors import GenomeError
from nas.genome import Genome, Visibility
from nas.mechanisms import MECHANISMS
from tests.compiler.test_compiler import both, random_genomes

if TYPE_CHECKING:
    Build = Callable[..., Genome]


def check_rows(genome: Genome, parts: tuple[int, ...] = (1,) * 9) -> Decoder:
    """Step through a sequence, with both back ends; returns the decoder at its end."""
    for block in both(genome, 32, 8):
        block.eval()  # a gate that warms up counts passes in training
        x = torch.randn(2, sum(parts), 32, dtype=torch.float64)
        decoder = Decoder(block)
        rows = torch.cat([decoder.step(part) for part in x.split(parts, dim=1)], dim=1)
        torch.testing.assert_close(rows, block(x, is_causal=True), rtol=1e-9, atol=1e-9)
        assert decoder.length == sum(parts)
    return decoder


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_step_equals_the_full_forwards_row(name: str) -> None:
    check_rows(MECHANISMS[name].genome)


@pytest.mark.parametrize("rope", [False, True])
@pytest.mark.parametrize("kv_heads", ["all", "1/4"])
@pytest.mark.parametrize("parts", [(1,) * 9, (5, 1, 3)])
def test_qana_decodes_with_rotations_groups_and_a_prompt(
    genome: Build, rope: bool, kv_heads: str, parts: tuple[int, ...]
) -> None:
    nodes = (("qana", "qk", {"rope": rope}), ("softmax", [0]), ("weighted_sum", [1, "v"]))
    check_rows(genome(*nodes, kv_heads=kv_heads), parts)


def test_rotated_nodes_know_their_place(genome: Build) -> None:
    check_rows(
        genome(
            ("rope", "q"),
            ("rope", "k"),
            ("scaled_dot_product", [0, 1]),
            ("softmax", [2]),
            ("weighted_sum", [3, "v"]),
        )
    )


@pytest.mark.parametrize("normaliser", ["softmax", "sigmoid", "softmax_free", "uniform"])
@pytest.mark.parametrize("seen", [Visibility(), Visibility(1), Visibility(4), Visibility(4, 2)])
def test_biases_of_keys_and_distances_know_their_place(
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


def test_attention_of_attention_keeps_what_it_attended_to(genome: Build) -> None:
    twice = genome(
        ("scaled_dot_product", "qk"),
        ("softmax", [0]),
        ("weighted_sum", [1, "v"]),
        ("scaled_dot_product", ["q", 2]),
        ("softmax", [3]),
        ("weighted_sum", [4, 2]),
    )
    assert "tokens_2" in check_rows(twice).cache


def test_random_genomes_decode_or_say_why_not() -> None:
    decoded = 0
    for genome in random_genomes("attention_v2", 60, seed=9):
        plan = make_plan(genome)
        if plan.unsafe or any(s.primitive.needs_all_tokens for s in plan.steps):
            with pytest.raises(GenomeError, match="no cache of single tokens continues it"):
                Decoder(both(genome, 32, 8)[0])
        else:
            check_rows(genome, (3, 1, 1))
            decoded += 1
    assert decoded > 20


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_cache_holds_the_numbers_that_are_counted(name: str) -> None:
    genome = MECHANISMS[name].genome
    decoder = check_rows(genome)
    numbers = sum(kept[0].numel() for kept in decoder.cache.values()) / decoder.length
    cost = attention_cost(genome, dim=32, heads=8, tokens=8)
    # A mean could be continued from one sum; a decoder holds the tokens.
    states = {"uniform": 2 * 32 / 8}
    assert cost.kv_cache_bytes_per_token == states.get(name, 2 * numbers)


def test_a_decoder_forgets_and_refuses_another_batch() -> None:
    block = both(MECHANISMS["mha"].genome, 32, 8)[0]
    decoder = Decoder(block)
    x = torch.randn(2, 3, 32, dtype=torch.float64)
    first: Tensor = decoder.step(x)
    with pytest.raises(ValueError, match="3 sequences after 2"):
        decoder.step(torch.randn(3, 1, 32, dtype=torch.float64))
    decoder.reset()
    assert torch.equal(decoder.step(x), first)


def test_a_step_that_fails_leaves_no_trace() -> None:
    block = both(MECHANISMS["mha"].genome, 32, 8)[0]
    x = torch.randn(2, 4, 32, dtype=torch.float64)
    decoder = Decoder(block)
    decoder.step(x[:, :3])
    with pytest.raises(RuntimeError):
        decoder.step(x[:, 3:, :16])
    torch.testing.assert_close(decoder.step(x[:, 3:]), block(x, is_causal=True)[:, 3:])


def test_what_is_no_block_cannot_be_decoded() -> None:
    with pytest.raises(GenomeError, match="Linear is no block that can be decoded"):
        Decoder(torch.nn.Linear(2, 2))
