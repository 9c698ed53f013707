"""Windows and global tokens: what each token sees."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from nas.compiler import build_attention
from nas.compiler.masks import in_window
from nas.genome import Visibility
from nas.genome.mechanisms import MECHANISMS


def mask(n: int, window: int, global_tokens: int, is_causal: bool = False) -> Tensor:
    places = torch.arange(n)
    return in_window(places[:, None], places, window, global_tokens, is_causal)


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


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("window", "global_tokens"), [(1, 0), (6, 2)])
def test_receptive_fields_by_perturbation(is_causal: bool, window: int, global_tokens: int) -> None:
    n = 20
    found = replace(MECHANISMS["mha"].genome, visibility=Visibility(window, global_tokens))
    block = build_attention(found, 16, 4).double()
    assert torch.equal(reach(block, n, is_causal), mask(n, window, global_tokens, is_causal))
