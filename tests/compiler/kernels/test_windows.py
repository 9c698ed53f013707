"""Windows and global tokens: what is seen, that blocks change nothing, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from nas.compiler import build_attention, emit
from nas.compiler.kernels.windows import in_window, window_blocks
from nas.costs.measured import UNCOUNTED
from nas.genome import Genome, Visibility
from nas.genome.mechanisms import MECHANISMS
from tests.compiler.test_compiler import both, check_equal, masks, random_genomes

if TYPE_CHECKING:
    Build = Callable[..., Genome]


def windowed(genome: Genome, window: int, global_tokens: int = 0) -> Genome:
    return replace(genome, visibility=Visibility(window, global_tokens))


def mask(n: int, window: int, global_tokens: int, is_causal: bool = False) -> Tensor:
    places = torch.arange(n)
    return in_window(places, places, window, global_tokens, is_causal)


@pytest.mark.parametrize("window", [1, 2, 3, 4])
def test_window_hides_distant_tokens(window: int) -> None:
    near, past = mask(9, window, 0), mask(9, window, 0, is_causal=True)
    for i in range(9):
        seen = {j for j in range(9) if near[i, j]}
        assert seen == {j for j in range(9) if abs(i - j) <= window // 2}
        assert {j for j in range(9) if past[i, j]} == set(range(max(0, i - window + 1), i + 1))


def test_global_tokens_see_all_and_are_seen_by_all() -> None:
    near, past = mask(9, 2, 2), mask(9, 2, 2, is_causal=True)
    assert bool(near[:2].all())
    assert bool(near[:, :2].all())
    assert not near[3, 8]
    assert torch.equal(past, past.tril())
    assert bool(past[:, :2].tril().sum() == torch.ones(9, 2).tril().sum())


def reach(block: nn.Module, n: int, is_causal: bool) -> Tensor:
    """(i, j): whether changing token j changes output i."""
    torch.manual_seed(2)
    x = torch.randn(1, n, block.dim, dtype=torch.float64)  # type: ignore[arg-type]
    before = block(x, is_causal=is_causal)
    rows = []
    for j in range(n):
        moved = x.clone()
        moved[:, j] += torch.randn(block.dim, dtype=torch.float64)  # type: ignore[arg-type]
        rows.append((block(moved, is_causal=is_causal) - before)[0].abs().amax(-1) > 1e-9)
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("name", ["mha", "qana"])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("window", "global_tokens"), [(1, 0), (5, 0), (6, 2)])
def test_receptive_fields_by_perturbation(
    name: str, is_causal: bool, window: int, global_tokens: int
) -> None:
    n = 140  # more than one block
    block = both(windowed(MECHANISMS[name].genome, window, global_tokens), 16, 4)[0]
    assert torch.equal(reach(block, n, is_causal), mask(n, window, global_tokens, is_causal))


def check_blocks(genome: Genome, n: int, is_causal: bool) -> None:
    """Blocks and the interpreter's one mask agree under every mask."""
    check_equal(genome, n, *(given | {"is_causal": is_causal} for given in masks(n).values()))


NAMES = ("mha", "gqa", "qana", "neural_attention", "champion_2025", "patterns", "uniform")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("window", "global_tokens"), [(9, 0), (10, 3), (70, 1)])
def test_blocks_equal_the_interpreter(
    name: str, is_causal: bool, window: int, global_tokens: int
) -> None:
    check_blocks(windowed(MECHANISMS[name].genome, window, global_tokens), 150, is_causal)


def test_random_genomes_in_blocks_equal_the_interpreter() -> None:
    for number, genome in enumerate(random_genomes("attention_v2", 24, seed=5)):
        check_blocks(windowed(genome, 8, number % 3), 140, is_causal=False)


def test_attention_of_attention_has_two_methods(genome: Build) -> None:
    twice = genome(
        ("scaled_dot_product", "qk"),
        ("softmax", [0]),
        ("weighted_sum", [1, "v"]),
        ("scaled_dot_product", [2, "k"]),
        ("softmax", [3]),
        ("weighted_sum", [4, 2]),
    )
    assert emit(windowed(twice, 8), 32, 8).count("by_windows(\n") == 2
    check_blocks(windowed(twice, 8, 1), 150, is_causal=True)


@pytest.mark.parametrize(
    "nodes",
    [
        # Weights that are read again after what they aggregated.
        (
            ("scaled_dot_product", "qk"),
            ("softmax", [0]),
            ("weighted_sum", [1, "v"]),
            ("weighted_sum", [1, 2]),
        ),
        # A score that mixes neighbours.
        (("convolutional_score", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"])),
        # Rotations, with global tokens far from their place.
        (("qana", "qk", {"rope": True}), ("softmax", [0]), ("weighted_sum", [1, "v"])),
    ],
)
def test_graphs_that_cannot_run_in_blocks_have_one_mask(
    genome: Build, nodes: tuple[tuple[object, ...], ...]
) -> None:
    whole = windowed(genome(*nodes), 8, 2)
    assert "windowed_keys(" in emit(whole, 32, 8)
    check_blocks(whole, 140, is_causal=False)


def test_rotated_scores_run_in_blocks_without_global_tokens(genome: Build) -> None:
    nodes = (("qana", "qk", {"rope": True}), ("softmax", [0]), ("weighted_sum", [1, "v"]))
    rotated = windowed(genome(*nodes), 8)
    assert "by_windows(" in emit(rotated, 32, 8)
    for is_causal in (False, True):
        check_blocks(rotated, 150, is_causal)


def computed(genome: Genome, n: int) -> int:
    """Operations of matrix products that one call really makes."""
    block = build_attention(genome, 32, 8)
    counter = FlopCounterMode(display=False, custom_mapping=UNCOUNTED)
    with counter, torch.no_grad():
        block(torch.randn(1, n, 32))
    return counter.get_total_flops()


def test_the_work_grows_linearly_with_the_length() -> None:
    genome = windowed(MECHANISMS["sqa"].genome, 16, 2)
    assert computed(genome, 4096) < 4.05 * computed(genome, 1024)
    assert computed(MECHANISMS["sqa"].genome, 4096) > 10 * computed(MECHANISMS["sqa"].genome, 1024)


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 1), (65, 1), (128, 1), (129, 3), (1000, 16)])
def test_short_sequences_are_one_block(tokens: int, blocks: int) -> None:
    assert len(window_blocks(torch.zeros(1, tokens, 4), None, None, False, 16, 0)) == blocks
