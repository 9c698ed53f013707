"""Learned maps of the features, and gates."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.genome.primitives.base import Role, map_macs, primitive
from nas.genome.primitives.factors import sign_of_first
from nas.genome.primitives.shapes import Tokens


@primitive(
    "linear",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="Linear({tokens})",
    source="Evolving Attention, section 2.1",
    macs=map_macs,
)
class Linear(nn.Module):
    """An affine map of the features, shared by the heads.

    out = W x + b, W of shape w x w
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, tokens: Tokens) -> Tokens:
        return self.linear(tokens)


@primitive(
    "gated_value",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.GATE,
    notation="gate({tokens})",
    source="Evolving Attention, section 2.1",
    macs=map_macs,
    sign=sign_of_first,
)
class GatedValue(nn.Module):
    """Features scaled by a gate of their own token, shared by the heads.

    out = v * sigmoid(W v + b)
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)

    def forward(self, tokens: Tokens) -> Tokens:
        return tokens * torch.sigmoid(self.gate(tokens))


@primitive(
    "output_gate",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.GATE,
    notation="{tokens} ⊙ σ(W x)",
    source="Qiu et al. 2025 (Gated Attention, arXiv 2505.06708), eq. 5",
    macs=lambda sizes, params: sizes.tokens * sizes.dim * sizes.heads * sizes.width,
    sign=sign_of_first,
    homogeneous=("tokens",),
    is_additive=True,
    is_featurewise=True,
)
class OutputGate(nn.Module):
    """Features of every head scaled by a gate projected from the block's input.

    out_i = tokens_i * sigmoid(W x_i), elementwise, W a map of its own for every head
    """

    def __init__(self, dim: int, heads: int, width: int, bias: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.gate = nn.Linear(dim, heads * width, bias=bias)

    def forward(self, tokens: Tokens, x: Float[Tensor, "b n d"]) -> Tokens:
        gate = self.gate(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return tokens * torch.sigmoid(gate)
