"""Random tensors and masks for tests, and comparisons of results and gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.testing.promises import gradients

ACTIVATIONS: Final = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu, "tanh": torch.tanh}


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers in float64; torch's own generator is left as it is."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def add_noise(module: nn.Module, scale: float) -> None:
    """Add noise to the weights, since zeros at the start hide what they multiply."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(scale * torch.randn_like(weight))


def mask_of(kind: str, n: int) -> Tensor | None:
    """A mask of two samples: none, padding, shared by both, or rows of which one is empty."""
    if kind == "none":
        return None
    if kind == "padding":
        return (torch.arange(n) < n - 3).expand(2, 1, 1, n)
    if kind == "shared":
        return torch.rand(n, n) > 0.3
    allowed = torch.rand(2, 1, n, n) > 0.3
    allowed[1, 0, 3] = False  # a query that sees nothing gets zeros
    return allowed


def split(x: Tensor, width: int) -> Tensor:
    """The heads of tokens, (b, n, h w) to (b, h, n, w)."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


def streams(block: nn.Module, x: Tensor) -> list[Tensor]:
    """The projected q, k, v, each (b, heads of its own, n, w)."""
    width = block.dim // block.heads
    return [split(linear(x), width) for linear in (block.wq, block.wk, block.wv)]


def merged(block: nn.Module, heads: Tensor) -> Tensor:
    """The output of a block for what its heads aggregate, (b, h, n, w) to (b, n, d)."""
    return block.wo(heads.transpose(1, 2).flatten(2))


def recurrence(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor | None = None) -> Tensor:
    """S_t = diag(f_t) S_{t-1} + k_t u_t and o_t = q_t S_t, with u = v, or u = b (v - k S)."""
    state = torch.zeros(*q.shape[:2], q.shape[3], v.shape[3], dtype=q.dtype)
    out = []
    for t in range(q.shape[2]):
        state = f[:, :, t, :, None] * state
        u = v[:, :, t]
        if b is not None:
            u = b[:, :, t] * (u - (k[:, :, t, :, None] * state).sum(2))
        state = state + k[:, :, t, :, None] * u[:, :, None]
        out.append((q[:, :, t, :, None] * state).sum(2))
    return torch.stack(out, dim=2)


def turned(x: Tensor, count: int, base: float = 10_000.0) -> Tensor:
    """Tokens (b, h, n, w) whose first ``count`` features are rotated in pairs by their place."""
    out = x.clone()
    for t in range(x.shape[2]):
        for i in range(count // 2):
            angle = torch.tensor(t * base ** (-2 * i / count), dtype=torch.float64)
            a, b = x[:, :, t, i], x[:, :, t, i + count // 2]
            out[:, :, t, i] = a * angle.cos() - b * angle.sin()
            out[:, :, t, i + count // 2] = b * angle.cos() + a * angle.sin()
    return out


def with_gradients(out: Tensor, leaves: Iterable[Tensor]) -> list[Tensor]:
    """A result and the gradients of a weighted sum of it; zero where it does not depend on one."""
    return [out, *gradients(out, leaves)]


def check_same(ours: Iterable[Tensor], theirs: Iterable[Tensor], tolerance: float = 1e-9) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert not a.isnan().any()
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
