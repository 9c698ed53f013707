from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from nas.compiler import build_attention, make_plan
from nas.compiler.windows import in_window
from nas.costs import attention_cost, backbone_cost, closed_form_macs
from nas.errors import GenomeError, NasError
from nas.genome import Visibility
from nas.mechanisms import MECHANISMS
from nas.primitives import REGISTRY, Role, primitive
from nas.sources import load_genome
from nas.space import load_space
from nas.validation import load_policy
from nas.variation import Variation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nas.genome import Genome

    Build = Callable[..., Genome]

SIZES = ({"dim": 64, "heads": 8, "tokens": 17}, {"dim": 96, "heads": 4, "tokens": 40})


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("sizes", SIZES)
def test_the_count_equals_the_closed_formula(name: str, sizes: dict[str, int]) -> None:
    genome = MECHANISMS[name].genome
    assert attention_cost(genome, **sizes).macs == closed_form_macs(make_plan(genome), **sizes)


def test_the_count_of_multi_head_attention_written_out() -> None:
    n, d = 65, 64
    cost = attention_cost(MECHANISMS["mha"].genome, dim=d, heads=4, tokens=n)
    assert cost.macs == 4 * n * d * d + 2 * n * n * d
    assert cost.attention_macs == 2 * n * n * d
    assert cost.params == 4 * d * d + d
    assert cost.kv_cache_bytes_per_token == 2 * 2 * d
    # the scale and the softmax of each score, apart from multiply-adds
    assert cost.elementwise == 2 * 4 * n * n
    # biases, two layer norms and a feed-forward of width 4 d around it
    assert cost.seed_compatible_macs == cost.macs + 8 * n * d * d + 5 * 2 * n * d


def test_qana_costs_what_its_formula_says() -> None:
    n, d, heads, h = 16, 32, 4, 4
    width = d // heads
    d_q = width + h * width + 2 * h + 1
    cost = attention_cost(MECHANISMS["qana"].genome, dim=d, heads=heads, tokens=n)
    scores = n * n * heads * (width * (1 + h) + h)
    assert cost.macs == n * d * heads * d_q + 3 * n * d * d + scores + n * n * d
    assert cost.attention_macs == scores + n * n * d


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("gqa", 2 * 64 // 4),
        ("mqa", 2 * 8),
        ("patterns", 64 + 64),
        ("messages", 64 + 8 * 64),
        ("champion_2025", 64 + 64),
    ],
)
def test_cache_of_a_token(name: str, numbers: int) -> None:
    cost = attention_cost(MECHANISMS[name].genome, dim=64, heads=8, tokens=8)
    assert cost.kv_cache_bytes_per_token == 2 * numbers


def test_cache_of_what_streams_alone_do_not_give(genome: Build) -> None:
    """A second attention over the first one's result keeps that; a gate on keys its outcome."""
    twice = genome(
        ("scaled_dot_product", "qk"),
        ("softmax", [0]),
        ("weighted_sum", [1, "v"]),
        ("scaled_dot_product", ["q", 2]),
        ("softmax", [3]),
        ("weighted_sum", [4, "v"]),
    )
    sizes = {"dim": 64, "heads": 8, "tokens": 8}
    assert attention_cost(twice, **sizes).kv_cache_bytes_per_token == 2 * 3 * 64
    gated = genome(
        ("output_gate", "k"),
        ("scaled_dot_product", ["q", "k"]),
        ("softmax", [1]),
        ("weighted_sum", [2, 0]),
    )
    assert attention_cost(gated, **sizes).kv_cache_bytes_per_token == 2 * 2 * 64


def random_genomes(space_name: str, count: int) -> Iterator[Genome]:
    space = load_space(space_name)
    variation = Variation(space, load_policy(space.policy))
    rng = np.random.default_rng(3)
    for _ in range(count):
        yield variation.mutate(variation.sample(rng), rng, 2)[0]


@pytest.mark.parametrize("space", ["attention_v1", "attention_v2"])
def test_random_genomes_count_what_their_formulas_say(space: str) -> None:
    for genome in random_genomes(space, 40):
        attention_cost(genome, dim=64, heads=8, tokens=19)  # raises where the two differ


def test_counts_are_half_of_torchs_flops(genome: Build) -> None:
    """On matrix operations, that is; sums over hidden units are no product to torch."""
    names = [n for n in MECHANISMS if n not in ("additive", "neural_attention")]
    for name in names:
        block = build_attention(MECHANISMS[name].genome, 64, 8, reference=True)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            block(torch.randn(1, 17, 64))
        macs = attention_cost(MECHANISMS[name].genome, dim=64, heads=8, tokens=17).macs
        assert counter.get_total_flops() == 2 * macs, name


def test_convolutions_count_exactly_at_lengths_that_are_not_traced(genome: Build) -> None:
    found = genome(
        ("convolutional_score", "qk"),
        ("softmax", [0]),
        ("short_conv", "v"),
        ("weighted_sum", [1, 2]),
    )
    n, d = 333, 32
    cost = attention_cost(found, dim=d, heads=4, tokens=n)
    assert cost.macs == 4 * n * d * d + 2 * n * n * d + 2 * 3 * n * d + 3 * n * d


def test_counting_draws_nothing_and_warns_of_nothing() -> None:
    state = torch.random.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention_cost(MECHANISMS["qana"].genome, dim=32, heads=4, tokens=9)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_backbone_sums_layers_with_and_without_the_mechanism() -> None:
    sizes = {"dim": 64, "heads": 4, "tokens": 65}
    neural = attention_cost(MECHANISMS["neural_attention"].genome, **sizes)
    mha = attention_cost(MECHANISMS["mha"].genome, **sizes)
    total = backbone_cost(MECHANISMS["neural_attention"].genome, depth=3, **sizes)
    assert total["macs"] == neural.macs + 2 * mha.macs
    assert total["params"] == neural.params + 2 * mha.params


def test_sizes_at_which_a_mechanism_does_not_exist() -> None:
    with pytest.raises(GenomeError, match="3/4"):
        attention_cost(MECHANISMS["lsqa"].genome, dim=12, heads=6, tokens=4)


@pytest.mark.parametrize("form", ["matmul", "einsum", "fused"])
def test_one_attention_counts_the_same_however_it_is_spelt(form: str) -> None:
    from nas.counting import _trace

    class Spelt(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = x.view(1, 19, 4, 8).transpose(1, 2)
            if form == "fused":
                return torch.nn.functional.scaled_dot_product_attention(q, q, q)
            if form == "einsum":
                scores = torch.einsum("bhqd,bhkd->bhqk", q, q)
                return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), q)
            return (q @ q.transpose(-2, -1)).softmax(-1) @ q

    counts = _trace(Spelt(), torch.empty(1, 19, 32, device="meta"))
    assert sum(n for name, n in counts.items() if name != "elementwise") == 2 * 19 * 19 * 32


@pytest.fixture
def unlisted() -> Iterator[None]:
    @primitive(
        "unlisted",
        "tokens: tokens[h,w] -> tokens[h,w]",
        role=Role.TRANSFORM,
        notation="u({tokens})",
        source="a test",
    )
    class Unlisted(torch.nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(tokens)

    yield
    del REGISTRY["unlisted"]


@pytest.mark.usefixtures("unlisted")
def test_an_operation_that_nobody_listed_is_an_error_that_names_it(genome: Build) -> None:
    found = genome(
        ("scaled_dot_product", "qk"), ("softmax", [0]), ("unlisted", "v"), ("weighted_sum", [1, 2])
    )
    with pytest.raises(NasError, match="bessel_j0"):
        attention_cost(found, dim=16, heads=2, tokens=4)


@pytest.mark.parametrize("name", ["sw_sqa", "flex_sqa"])
@pytest.mark.parametrize("tokens", [16, 100])
def test_windows_count_the_pairs_that_they_allow(name: str, tokens: int) -> None:
    genome, d, heads = MECHANISMS[name].genome, 64, 8
    dense = replace(genome, visibility=Visibility())
    whole = attention_cost(dense, dim=d, heads=heads, tokens=tokens)
    cost = attention_cost(genome, dim=d, heads=heads, tokens=tokens)
    places = torch.arange(tokens)
    seen = genome.visibility
    pairs = int(in_window(places, places, seen.window or 0, seen.global_tokens, False).sum())
    assert cost.attention_macs == 2 * (heads // 2) * (d // heads) * pairs
    assert cost.macs == whole.macs - whole.attention_macs + cost.attention_macs
    # Scaling and softmax touch every pair once each, in four heads.
    assert cost.elementwise == whole.elementwise - 2 * 4 * (tokens**2 - pairs)
    assert cost.params == whole.params
    assert cost.seed_compatible_macs == whole.seed_compatible_macs


def test_long_windows_are_counted_without_a_mask_of_their_length() -> None:
    cost = attention_cost(MECHANISMS["sw_sqa"].genome, dim=64, heads=8, tokens=2**20)
    assert cost.attention_macs == 2 * 4 * 8 * Visibility(32).allowed_pairs(2**20)


def test_a_length_that_a_mechanism_refuses_is_a_users_fault() -> None:
    data = MECHANISMS["mha"].genome.to_dict()
    op = "neural_attention_per_position"
    data["graph_def"][0] = {"op": op, "inputs": ["q", "k"], "params": {"tokens": 5}}
    genome = type(MECHANISMS["mha"].genome).from_dict(data)
    assert attention_cost(genome, dim=16, heads=2, tokens=5).macs > 0
    with pytest.raises(GenomeError, match="6 tokens"):
        attention_cost(genome, dim=16, heads=2, tokens=6)


def test_a_projection_that_no_score_reads_is_counted_as_it_is_computed() -> None:
    """QANA without its skip leaves the query stream unread; its block computes it all the same."""
    n, d, heads, w, h = 17, 32, 4, 8, 4
    genome = load_genome("qana:skip=false,init=random")
    cost = attention_cost(genome, dim=d, heads=heads, tokens=n)
    tail = n * d * heads * (h * w + 2 * h + 1)
    assert cost.macs == 4 * n * d * d + tail + heads * n * n * (h * w + h) + n * n * d
