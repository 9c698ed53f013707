"""Random tensors, and comparisons of results and gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from nas.genome.primitives import get

WIDTH, HEADS, DIM = 4, 2, 8


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def noisy(module: Any) -> Any:
    """The module in float64, with noise on its weights, since zeros would hide errors."""
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module


def built(name: str, **params: Any) -> Any:
    """The module of a primitive."""
    torch.manual_seed(1)
    sizes = {"dim": DIM, "heads": HEADS, "width": WIDTH, "rank": WIDTH}
    primitive = get(name)
    return noisy(primitive.module(**{key: sizes[key] for key in primitive.sizes}, **params))


def check_same(found: Tensor, expected: Tensor, leaves: Iterable[Tensor]) -> None:
    """Two results are equal, and so are the gradients of a weighted sum of each."""
    leaves = list(leaves)
    above = torch.linspace(-1.0, 1.0, found.numel(), dtype=found.dtype).view_as(found)
    assert not found.isnan().any()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    gradients = (
        torch.autograd.grad((out * above).sum(), leaves, allow_unused=True, retain_graph=True)
        for out in (found, expected)
    )
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
