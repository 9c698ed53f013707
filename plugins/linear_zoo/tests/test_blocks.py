"""Selection of blocks of keys, one row at a time, and MoBA, one query at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from helpers import draw, noisy
from linear_zoo.primitives.scores import BlockFilter
from torch import Tensor

import nas
from nas.genome import ModelSizes
from nas.genome.canonical import canonicalise
from nas.genome.mechanisms.base import Graph
from nas.testing import check_mechanism


def causal(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril()


def filtered(**params: Any) -> nas.Genome:
    """Standard attention to the keys that a block filter keeps."""
    g = Graph()
    scores = g.add("scaled_dot_product", "q", "k")
    return g.genome(g.attend(g.add("block_filter", scores, **params), "v"))


def kept_blocks(scores: Tensor, mask: Tensor, block: int, count: int) -> Tensor:
    """The scores of each row's best blocks and its own, chosen one row at a time."""
    out = torch.full_like(scores, -math.inf)
    keys = scores.shape[-1]
    visible = mask.expand(scores.shape)
    for b, h, i in torch.cartesian_prod(*(torch.arange(n) for n in scores.shape[:3])).tolist():
        means = {}
        for start in range(0, keys, block):
            seen = [j for j in range(start, min(start + block, keys)) if visible[b, h, i, j]]
            if seen and start // block != i // block:
                means[start] = scores[b, h, i, seen].mean().item()
        best = sorted(means, key=lambda start: means[start])[-count:]
        for start in [*best, i // block * block]:
            out[b, h, i, start : start + block] = scores[b, h, i, start : start + block]
    return out


@pytest.mark.parametrize(("block", "k"), [(1, 1), (2, 1), (2, 3), (4, 2), (5, 1), (16, 1)])
@pytest.mark.parametrize("kind", ["none", "causal", "padding"])
def test_block_filter_keeps_the_blocks_of_the_largest_means(block: int, k: int, kind: str) -> None:
    z = draw(2, 3, 13, 13).requires_grad_()
    mask = {"none": torch.ones(13, 13).bool(), "causal": causal(13)}
    mask["padding"] = (torch.arange(13) < 9).expand(2, 1, 1, 13)
    found = BlockFilter(block=block, k=k)(z, mask=None if kind == "none" else mask[kind])
    expected = kept_blocks(z, mask[kind], block, k)
    torch.testing.assert_close(
        found.masked_fill(~mask[kind], 0.0), expected.masked_fill(~mask[kind], 0.0)
    )
    (gradient,) = torch.autograd.grad(found[found.isfinite()].sum(), z)
    assert torch.equal(gradient, found.isfinite().double())


def test_a_later_part_of_the_queries_has_the_same_blocks() -> None:
    z = draw(2, 3, 13, 13)
    whole = BlockFilter(block=3, k=1)(z, mask=causal(13))
    part = BlockFilter(block=3, k=1)(z[:, :, 5:], mask=causal(13)[5:], start=5)
    assert torch.equal(part, whole[:, :, 5:])


def test_attention_to_small_blocks_keeps_the_promises_of_all_mechanisms() -> None:
    check_mechanism(filtered(block=2, k=1))


def test_a_filter_of_all_blocks_is_removed() -> None:
    wide = canonicalise(filtered(block=5, k=1), ModelSizes(32, 8, 2, 9))
    assert wide == canonicalise(nas.load_genome("mha"))


def test_moba_equals_attention_to_the_chosen_blocks() -> None:
    torch.manual_seed(0)
    block = noisy(nas.build_attention("moba", dim=24, heads=4))
    x = draw(1, 80, 24)
    q, k, v = (w(x).unflatten(-1, (4, 6)).transpose(1, 2) for w in (block.wq, block.wk, block.wv))
    means = k.unflatten(2, (5, 16)).mean(3)
    out = torch.zeros_like(q)
    for h in range(4):
        for i in range(80):
            own = i // 16
            scores = [(q[0, h, i] @ means[0, h, m]).item() for m in range(own)]
            best = sorted(range(own), key=lambda m: scores[m])[-2:]
            seen = [j for m in [*best, own] for j in range(16 * m, 16 * m + 16) if j <= i]
            weights = (k[0, h, seen] @ q[0, h, i] / 6**0.5).softmax(0)
            out[0, h, i] = weights @ v[0, h, seen]
    expected = block.wo(out.transpose(1, 2).flatten(2))
    torch.testing.assert_close(block(x, is_causal=True), expected)
