"""Primitives that the tools behind exports do not take."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.genome.primitives.base import Role, primitive

DECLARED = {"role": Role.TRANSFORM, "source": "a test"}


@primitive("branching", "tokens: tokens[h,w] -> tokens[h,w]", notation="if({tokens})", **DECLARED)
class Branching(nn.Module):
    """What is computed depends on the numbers."""

    def forward(self, tokens: Float[Tensor, "b h n w"]) -> Float[Tensor, "b h n w"]:
        return tokens if tokens.sum() > 0 else -tokens


@primitive("special", "tokens: tokens[h,w] -> tokens[h,w]", notation="J0({tokens})", **DECLARED)
class Special(nn.Module):
    """A function that ONNX lacks."""

    def forward(self, tokens: Float[Tensor, "b h n w"]) -> Float[Tensor, "b h n w"]:
        return torch.special.bessel_j0(tokens)
