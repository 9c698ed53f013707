"""Modern mechanisms against direct implementations of their papers' equations.

A mechanism that is standard attention with one other primitive is tested by this primitive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from nas.compiler import build_attention
from nas.genome.mechanisms import MECHANISMS
from tests.tensors import (
    add_noise,
    check_same,
    draw,
    merged,
    split,
    streams,
    turned,
    with_gradients,
)

DIM, HEADS, TOKENS, WIDTH = 24, 4, 11, 6


def attended(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool, weigh: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """Weighted sums of values, for one head and query at a time.

    ``weigh`` maps the scores of a query's visible keys, and the head, to their weights.
    """
    heads = []
    for h in range(q.shape[1]):
        rows = []
        for i in range(q.shape[2]):
            end = i + 1 if is_causal else k.shape[2]
            scores = torch.stack([(q[:, h, i] * k[:, h, j]).sum(-1) for j in range(end)], -1)
            weights = weigh(scores / WIDTH**0.5, h)
            rows.append(sum(weights[:, j, None] * v[:, h, j] for j in range(end)))
        heads.append(torch.stack(rows, 1))
    return torch.stack(heads, 1)


def softmax(scores: Tensor, head: int) -> Tensor:
    return scores.exp() / scores.exp().sum(-1, keepdim=True)


def linear(block: Any, x: Tensor, is_causal: bool) -> Tensor:
    q, k, v = streams(block, x)
    q, k = (torch.where(t > 0, t + 1, t.exp()) for t in (q, k))
    return merged(block, attended(q, k, v, is_causal, lambda s, h: s / s.sum(-1, keepdim=True)))


def qk_norm(block: Any, x: Tensor, is_causal: bool) -> Tensor:
    q, k, v = streams(block, x)
    q, k = (
        turned(t / (t.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.gain, WIDTH)
        for t, norm in ((q, block.rms_norm_0), (k, block.rms_norm_2))
    )
    return merged(block, attended(q, k, v, is_causal, softmax))


def differential(block: Any, x: Tensor, is_causal: bool) -> Tensor:
    q, k, v = streams(block, x)
    wide = torch.cat((v[:, 0::2], v[:, 1::2]), -1)  # the values of a pair
    first, second = (attended(q[:, i::2], k[:, i::2], wide, is_causal, softmax) for i in (0, 1))
    out = first - block.head_difference_2.factor[:, None, None] * second
    out = out / (out.square().mean(-1, keepdim=True) + 1e-6).sqrt() * block.rms_norm_4.gain
    return merged(block, out)


def gated_attention(block: Any, x: Tensor, is_causal: bool) -> Tensor:
    out = attended(*streams(block, x), is_causal, softmax)
    gates = block.output_gate_3.gate(x).sigmoid()
    return block.wo(out.transpose(1, 2).flatten(2) * gates)


def canon(block: Any, x: Tensor, is_causal: bool) -> Tensor:
    mixed = []
    nodes = block.genome.nodes
    steps = {node.inputs[0]: i for i, node in enumerate(nodes) if node.op == "short_conv"}
    for name in "qkv":
        conv = getattr(block, f"short_conv_{steps[name]}").conv
        h = getattr(block, f"w{name}")(x)
        out = h + conv.bias
        for t in range(TOKENS):
            for s in range(min(4, t + 1)):
                out = out.index_add(1, torch.tensor([t]), conv.weight[:, 0, 3 - s] * h[:, [t - s]])
        mixed.append(split(out, WIDTH))
    return merged(block, attended(*mixed, is_causal, softmax))


def mla(block: Any, x: Tensor, is_causal: bool) -> Tensor:
    q, latent = split(block.wq(x), WIDTH), block.wv(x)
    norm = latent.square().mean(-1, keepdim=True)
    latent = latent / (norm + 1e-6).sqrt() * block.rms_norm_0.gain
    readers = {i: node.inputs for i, node in enumerate(block.genome.nodes)}
    key = next(refs[1] for i, refs in readers.items() if "product" in block.genome.nodes[i].op)
    value = readers[len(readers) - 1][1]
    maps = (getattr(block, f"head_linear_{i}").weight for i in (key, value))
    k, v = (torch.einsum("hvw,bnw->bhnv", each, latent) for each in maps)
    return merged(block, attended(q, k, v, is_causal, softmax))


CASES: Final = (qk_norm, linear, differential, gated_attention, canon, mla)


def block_of(name: str) -> Any:
    torch.manual_seed(0)
    block = build_attention(MECHANISMS[name].genome, DIM, HEADS).double().eval()
    add_noise(block, 0.2)
    return block


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("direct", CASES, ids=lambda direct: direct.__name__)
def test_mechanism_equals_its_equations(direct: Callable[..., Tensor], is_causal: bool) -> None:
    """Values, and gradients of the input and all weights."""
    block, x = block_of(direct.__name__), draw(2, TOKENS, DIM).requires_grad_()
    leaves = [x, *block.parameters()]
    results = (block(x, is_causal=is_causal), direct(block, x, is_causal))
    check_same(*(with_gradients(result, leaves) for result in results))


@pytest.mark.parametrize("name", ["patterns", "messages", "patterns_and_messages"])
@pytest.mark.parametrize("heads", [1, 4])
def test_free_matrices_compute_the_formula(name: str, heads: int) -> None:
    """Each head's scores and what it aggregates, by einsum; the scale is sqrt(d_h)."""
    torch.manual_seed(0)
    dim, length = 24, 7
    block = build_attention(MECHANISMS[name].genome, dim, heads).double()
    x = torch.randn(2, length, dim, dtype=torch.float64)
    keys = x.unsqueeze(1) if name != "messages" else split(block.wk(x), dim // heads)
    queries, values = (split(y, y.shape[-1] // heads) for y in (block.wq(x), block.wv(x)))
    scores = queries @ keys.transpose(2, 3) / (dim // heads) ** 0.5
    out = torch.einsum("bhqk,bhkw->bqhw", scores.softmax(dim=-1), values)
    expected = block.wo(out.flatten(2)) if name == "patterns" else out.sum(dim=2)
    torch.testing.assert_close(block(x), expected, rtol=0.0, atol=1e-12)
