"""Mechanisms with forget gates and the delta rule, as loops over tokens from their equations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import nas
from nas.genome.mechanisms import MECHANISMS
from tests.tensors import add_noise, check_same, merged, recurrence, split, streams, with_gradients

DIM, HEADS, TOKENS, WIDTH = 16, 2, 70, 8


def convolved(block: Any, x: Tensor) -> list[Tensor]:
    """The streams after a causal convolution and swish, in the order q, k, v."""
    convolutions = [m.conv for name, m in block.named_children() if name.startswith("short_conv")]
    found = []
    for linear, conv in zip((block.wq, block.wk, block.wv), convolutions, strict=True):
        padded = F.pad(linear(x).mT, (3, 0))
        mixed = [
            (padded[..., t : t + 4] * conv.weight[:, 0]).sum(-1) + conv.bias for t in range(TOKENS)
        ]
        found.append(split(F.silu(torch.stack(mixed, dim=1)), WIDTH))
    return found


def gates_of(block: Any, x: Tensor) -> Tensor:
    """f, (b, h, n, 1) or (b, h, n, w)."""
    (gate,) = (m for name, m in block.named_children() if "_gate_" in name and hasattr(m, "rate"))
    if hasattr(gate, "gate"):
        raw = gate.gate(x).mT[..., None]
        power = 1.0
    else:
        raw, power = split(gate.up(gate.down(x)), WIDTH), 1 / 16
    if gate.rate is None:
        return torch.sigmoid(raw) ** power
    return torch.exp(-gate.rate.exp().view(-1, 1, 1) * F.softplus(raw))


def states(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor | None = None) -> Tensor:
    """The recurrence with queries over the root of their width."""
    return recurrence(q, k, v, f, b) * q.shape[3] ** -0.5


def normed(block: Any, out: Tensor) -> Tensor:
    (norm,) = (m for name, m in block.named_children() if name.startswith("rms_norm"))
    return out / (out.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.gain


def model_normed(block: Any, out: Tensor) -> Tensor:
    (norm,) = (m for name, m in block.named_children() if name.startswith("model_norm"))
    return out / (out.square().mean((1, 3), keepdim=True) + 1e-6).sqrt() * norm.gain


def bounded(block: Any, raw: Tensor) -> Tensor:
    (bound,) = (m for name, m in block.named_children() if name.startswith("bound_gates"))
    low = torch.sigmoid(bound.bound)
    return low + (1 - low) * torch.sigmoid(split(raw, WIDTH))


def strength(block: Any, x: Tensor) -> Tensor:
    (delta,) = (m for name, m in block.named_children() if name.startswith("delta"))
    return torch.sigmoid(delta.strength(x)).mT[..., None]


def swish(block: Any, x: Tensor) -> Tensor:
    (gate,) = (m for name, m in block.named_children() if name.startswith("swish_gate"))
    return split(F.silu(gate.gate(x)), WIDTH)


def gla(block: Any, x: Tensor) -> Tensor:
    q, k, v = streams(block, x)
    return merged(block, normed(block, states(q, k, v, gates_of(block, x))) * swish(block, x))


def mamba2(block: Any, x: Tensor) -> Tensor:
    q, k, v = convolved(block, x)
    f = gates_of(block, x)
    (skip,) = (m for name, m in block.named_children() if name.startswith("value_skip"))
    out = states(q, k, -f.log() * v, f) + skip.factor * v
    return merged(block, model_normed(block, out * swish(block, x)))


def gated_deltanet(block: Any, x: Tensor) -> Tensor:
    q, k, v = convolved(block, x)
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    out = states(q, k, v, gates_of(block, x), strength(block, x))
    return merged(block, normed(block, out) * swish(block, x))


def kda(block: Any, x: Tensor) -> Tensor:
    q, k, v = convolved(block, x)
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    f = gates_of(block, x)
    (output,) = (m for name, m in block.named_children() if name.startswith("output_gate"))
    out = normed(block, states(q, k, v, f, strength(block, x)))
    return merged(block, out * split(torch.sigmoid(output.gate(x)), WIDTH))


def hgrn(block: Any, x: Tensor) -> Tensor:
    v, f, out = F.silu(split(block.wv(x), WIDTH)), bounded(block, block.wq(x)), []
    state = torch.zeros_like(v[:, :, 0])
    for t in range(TOKENS):
        state = f[:, :, t] * state + (1 - f[:, :, t]) * v[:, :, t]
        out.append(state)
    return merged(block, model_normed(block, torch.stack(out, dim=2)) * swish(block, x))


def hgrn2(block: Any, x: Tensor) -> Tensor:
    q, v, f = (
        F.silu(split(block.wq(x), WIDTH)),
        split(block.wv(x), WIDTH),
        bounded(block, block.wk(x)),
    )
    return merged(block, model_normed(block, states(q, 1 - f, v, f)))


@pytest.mark.parametrize("reference", [gla, mamba2, gated_deltanet, kda, hgrn, hgrn2])
def test_equals_the_loop_over_tokens(reference: Any) -> None:
    """Outputs and gradients of the compiled block, in chunks and in one."""
    torch.manual_seed(1)
    name = reference.__name__
    block = nas.build_attention(MECHANISMS[name].genome, DIM, HEADS).double()
    x = torch.randn(2, TOKENS, DIM, dtype=torch.float64, requires_grad=True)
    add_noise(block, 0.1)
    leaves = [x, *block.parameters()]
    found = with_gradients(block(x, is_causal=True), leaves)
    check_same(found, with_gradients(reference(block, x), leaves))


def test_retention_has_the_decay_of_each_head() -> None:
    torch.manual_seed(1)
    block: Any = nas.build_attention(MECHANISMS["retnet"].genome, DIM, HEADS).double()
    x = torch.randn(2, TOKENS, DIM, dtype=torch.float64)
    q, k, v = streams(block, x)
    turn = nas.genome.primitives.get("rope").module(width=DIM // HEADS)
    rates = 1 - 2.0 ** (-5.0 - torch.arange(HEADS, dtype=torch.float64))
    f = rates.view(-1, 1, 1).expand(2, HEADS, TOKENS, 1)
    out = normed(block, states(turn(q), turn(k), v, f)) * swish(block, x)
    torch.testing.assert_close(block(x, is_causal=True), merged(block, out))
