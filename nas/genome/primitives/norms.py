"""Normalisations of each token's features."""

from __future__ import annotations

import torch
from torch import nn

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.factors import zero_of_first
from nas.genome.primitives.shapes import Tokens


@primitive(
    "layer_norm",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="LN({tokens})",
    source="Ba et al. 2016, eq. 4; Evolving Attention, section 2.1",
)
class LayerNorm(nn.Module):
    """Features of each token at mean 0 and variance 1, then scaled and shifted as learned.

    out = (x - mean) / sqrt(var + 1e-5) * g + b, shared by the heads
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tokens) -> Tokens:
        return self.norm(tokens)


@primitive(
    "rms_norm",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="RMS({tokens})",
    source="Zhang and Sennrich 2019 (RMSNorm), eq. 4",
    sign=zero_of_first,
)
class RmsNorm(nn.Module):
    """Features of each token at mean square 1, then scaled as learned.

    out = x / sqrt(mean(x^2) + 1e-6) * g, shared by the heads
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, tokens: Tokens) -> Tokens:
        # The mean of squares in float32 at least: a square can overflow 16 bits.
        exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
        size = (exact.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
        return (exact / size * self.gain).to(tokens.dtype)
